"""Expedition: small worlds in which finding out costs something now and pays later."""
