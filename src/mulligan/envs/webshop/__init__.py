"""WebShop: find the product that an instruction asks for, and buy it."""
