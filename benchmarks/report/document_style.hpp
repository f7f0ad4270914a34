// The style of to_html(). Figures take their ink, grid and ground from --plot-*, and have values of
// their own where they stand alone (benchmarks/report/plots/plots.py).
#pragma once

namespace fp8_sdpa::bench {

inline constexpr const char* kPageStyle = R"css(
:root {
  color-scheme: light dark;
  --ground: #ffffff; --card: #f6f8fa; --ink: #1f2328; --soft: #59636e; --line: #d1d9e0;
  --shade: #afb8c1; --link: #0969da; --good: #1a7f37; --bad: #b42318;
  --plot-ink: #1f2328; --plot-soft: #59636e; --plot-grid: #d8dee4; --plot-ground: #ffffff;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #0d1117; --card: #161b22; --ink: #e6edf3; --soft: #9198a1; --line: #3d444d;
    --shade: #6e7681; --link: #58a6ff; --good: #3fb950; --bad: #ff7b72;
    --plot-ink: #e6edf3; --plot-soft: #9198a1; --plot-grid: #30363d; --plot-ground: #161b22;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 86rem;
  background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
  overflow-wrap: anywhere;
}
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .75rem; padding-top: .75rem;
     border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem; }
p, li { max-width: 52rem; }
p { margin: .5rem 0; }
ul { padding-left: 1.25rem; }
code { font: .875em ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.notice { border-left: .3rem solid var(--good); background: var(--card); border-radius: .25rem;
          padding: .75rem 1rem; margin: 1rem 0; font-size: 1.05rem; max-width: none; }
.notice.bad { border-color: var(--bad); }
.scroll {
  background:
    linear-gradient(to left, var(--ground) 50%, transparent) right / 3rem 100% no-repeat local,
    linear-gradient(to left, var(--shade), transparent) right / 1.5rem 100% no-repeat scroll;
  overflow-x: auto; margin: .5rem 0 1rem; border: 1px solid var(--line); border-radius: .375rem;
  width: fit-content; max-width: 100%;
}
table { border-collapse: collapse; font-size: .875rem; line-height: 1.35; overflow-wrap: normal; }
th, td { padding: .35rem .65rem; text-align: left; vertical-align: top; white-space: nowrap; }
td.long { white-space: normal; min-width: 16rem; }
th { background: var(--card); color: var(--soft); font-weight: 600; vertical-align: bottom;
     white-space: normal; }
td:first-child, th:first-child { position: sticky; left: 0; }
td:first-child { background: var(--ground); }
tbody tr + tr td { border-top: 1px solid var(--line); }
.number { text-align: right; font-variant-numeric: tabular-nums; }
details { margin: .5rem 0; }
summary { cursor: pointer; color: var(--link); padding: .25rem 0; }
.figures { columns: 24rem; column-gap: 1rem; }
figure { margin: 0 0 1rem; padding: .75rem; background: var(--plot-ground); break-inside: avoid;
         border: 1px solid var(--line); border-radius: .5rem; }
figure svg { display: block; width: 100%; height: auto; }
figure h3 { margin: 0 0 .25rem; }
figcaption { font-size: .8125rem; color: var(--soft); }
@media (max-width: 30rem) {
  body { padding: 1rem .75rem 3rem; }
  figure { padding: .5rem; }
  th, td { padding: .3rem .5rem; }
}
@media print { details > * { display: block; } }
)css";

}  // namespace fp8_sdpa::bench
