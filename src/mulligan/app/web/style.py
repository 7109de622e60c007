"""How the page looks, by day and by night."""

CSS = """
:root{color-scheme:light dark;--back:#f4f5f7;--card:#fff;--ink:#1d2126;--soft:#5c6570;--rule:#d9dde2;--accent:#0b6bcb;
--on:#fff;--tint:#e8f1fb;--good:#00704f;--bad:#b3341a;--warn:#fff4d6;--warnink:#6b4e00;--buy:#e08a00;--onbuy:#1d1400}
@media (prefers-color-scheme:dark){:root{--back:#14171b;--card:#1c2127;--ink:#e6e9ed;--soft:#9aa4af;--rule:#343b44;
--accent:#5aa9f5;--on:#0b1420;--tint:#1d3147;--good:#4cc79b;--bad:#ff8a66;--warn:#3a3016;--warnink:#f3d58a;--buy:#f0a92e;
--onbuy:#1d1400}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
form{margin:0}code,pre{font-family:ui-monospace,monospace;font-size:.86rem}
pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.4rem 0}
h1{font-size:1.4rem;line-height:1.25;margin:0 0 .4rem}h2{font-size:1.15rem;line-height:1.3;margin:.2rem 0 .7rem}
.ways+h2{margin-top:.9rem}
h3,h4{font-size:.85rem;color:var(--soft);font-weight:600;margin:.8rem 0 .3rem}p{margin:.4rem 0}
small{color:var(--soft);font-size:.8rem}a{color:var(--accent)}
header{display:flex;flex-wrap:wrap;gap:.3rem 1rem;align-items:center;padding:.6rem 1.2rem;background:var(--card);
border-bottom:1px solid var(--rule);position:sticky;top:0;z-index:1}
.brand{color:var(--accent)}.what{color:var(--soft);font-size:.9rem;overflow-wrap:anywhere}
.trial{margin-left:auto;display:flex;flex-wrap:wrap;gap:.3rem .7rem;align-items:center;font-size:.9rem}
.chips{display:flex;gap:.3rem}.chip{border:1px solid var(--rule);border-radius:99px;padding:0 .6rem;color:var(--soft)}
.chip.now{background:var(--accent);border-color:var(--accent);color:var(--on);font-weight:600}
.chip.won{border-color:var(--good);color:var(--good)}.chip.lost{border-color:var(--bad);color:var(--bad)}
.left{font-weight:600;font-variant-numeric:tabular-nums}meter{width:6rem;height:.9rem}
.two,.one{max-width:1240px;margin:0 auto;padding:1.2rem;display:grid;gap:1.2rem;align-items:start}
.two{grid-template-columns:minmax(0,1.7fr) minmax(0,1fr)}.one{max-width:820px}
aside,.card,.shop,.world,.memory{background:var(--card);border:1px solid var(--rule);border-radius:10px;
padding:.9rem 1.1rem;margin:0 0 1rem}
aside{font-size:.9rem;position:sticky;top:4rem;max-height:calc(100vh - 5.2rem);overflow:auto}
aside h2{font-size:.95rem;color:var(--soft)}aside>pre{background:var(--back);border-radius:6px;padding:.6rem .7rem}
aside details pre{border-left:3px solid var(--rule);padding-left:.6rem}
.sent code,.refused code{background:var(--tint);border-radius:4px;padding:.1rem .35rem;overflow-wrap:anywhere}
.refused code{background:var(--warn);color:var(--warnink)}
.actions{list-style:none;margin:0;padding:0;display:flex;flex-wrap:wrap;gap:.3rem}
.actions code{border:1px solid var(--rule);border-radius:4px;padding:0 .3rem;font-size:.78rem;color:var(--soft);
overflow-wrap:anywhere}
summary{cursor:pointer;color:var(--soft);font-size:.88rem;margin-top:.5rem}.memory summary{margin:0;font-weight:600}
.memory{border-left:4px solid var(--accent)}
.notice{background:var(--warn);color:var(--warnink);border-radius:8px;padding:.6rem .9rem;margin:0 0 1rem}
.wanted{background:var(--tint);border-radius:10px;padding:.7rem 1.1rem;margin:0 0 .8rem}
.wanted small{display:block;font-weight:600}
button{font:inherit;color:inherit;background:var(--card);border:1px solid var(--rule);border-radius:8px;cursor:pointer;
padding:.35rem .8rem}
button:hover{border-color:var(--accent)}button:focus-visible,input:focus-visible,textarea:focus-visible,
summary:focus-visible{outline:2px solid var(--accent);outline-offset:1px}
.go{background:var(--accent);border-color:var(--accent);color:var(--on);font-weight:600}
.row{display:flex;flex-wrap:wrap;gap:.4rem;margin:.3rem 0}
.box{display:flex;gap:.4rem;margin:0 0 .8rem}.box input[type=text]{flex:1;min-width:0}
input[type=text],textarea{font:inherit;color:inherit;background:var(--card);border:1px solid var(--rule);
border-radius:8px;padding:.5rem .8rem;width:100%}textarea{margin:.5rem 0;resize:vertical}
.hint{color:var(--soft)}.way,.more{color:var(--accent);font-size:.92rem}
.shop ol{list-style:none;margin:.6rem -1.1rem;padding:0}.shop li{border-top:1px solid var(--rule)}
.shop ol li:last-child{border-bottom:1px solid var(--rule)}.shop ul li{border:0}
.product{display:grid;grid-template-columns:4.2rem 1fr auto;gap:.8rem;align-items:baseline;width:100%;text-align:left;
border:0;border-radius:0;background:none;padding:.5rem 1.1rem}
.product:hover{background:var(--tint)}.product code{color:var(--soft)}.product:hover span{color:var(--accent)}
.price{font-variant-numeric:tabular-nums;white-space:nowrap}.facts .price{font-size:1.3rem}
.facts{display:flex;flex-wrap:wrap;gap:.2rem 1rem;align-items:baseline}.rating,.facts code{color:var(--soft)}
.value[aria-pressed]{background:var(--accent);border-color:var(--accent);color:var(--on);font-weight:600}
.mores{margin:1rem 0 .8rem;padding-top:.8rem;border-top:1px solid var(--rule)}
.buy{background:var(--buy);border-color:var(--buy);color:var(--onbuy);font-weight:700;padding:.5rem 1.6rem}
.world{font-size:1rem;line-height:1.35;max-height:65vh;overflow:auto}.board{white-space:pre;overflow-x:auto}
.score b{font-size:1.5rem}
table{border-collapse:collapse;width:100%;margin:.8rem 0;font-variant-numeric:tabular-nums}
th,td{text-align:left;vertical-align:top;padding:.4rem .7rem .4rem 0;border-top:1px solid var(--rule);
font-weight:normal}
thead th{color:var(--soft);font-size:.85rem;border:0}tr.won td:nth-child(2){color:var(--good);font-weight:600}
.note{white-space:pre-wrap;overflow-wrap:anywhere}
@media (max-width:860px){.two{grid-template-columns:minmax(0,1fr)}header,aside{position:static}aside{max-height:none}
.trial{margin-left:0}meter{display:none}}
"""
