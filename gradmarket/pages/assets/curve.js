// Draws the metrics after each round; the numbers come with every refresh of the page's part.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const box = document.getElementById("curve"), LIGHT = ["#2f6fdd", "#c2571a", "#1d8a55", "#8a4fc4", "#b3276f", "#6b6b00", "#00788a", "#555555"];
  const DARK = ["#8ab4ff", "#ffab7a", "#6fd196", "#cba6f7", "#ff9fc6", "#d6d65c", "#66d3e3", "#bbbbbb"];
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let plot = null, drawn = "";
  function draw() {
    const told = document.getElementById("series")?.dataset.series;
    if (!told || told === drawn) return;
    drawn = told;
    const series = JSON.parse(told), names = Object.keys(series).filter((name) => name !== "round");
    const data = [series.round, ...names.map((name) => series[name])];
    if (plot && plot.series.length === data.length) { plot.setData(data); return; }
    plot?.destroy();
    const colours = dark.matches ? DARK : LIGHT;
    const ink = getComputedStyle(document.body).color, axis = { stroke: ink, grid: { stroke: "#8884" } };
    // Losses share the left axis, shares from 0 to 1 the right one; a perplexity has a scale of its own, read off the legend.
    const share = (name) => series[name].every((value) => value === null || (value >= 0 && value <= 1));
    const scale = (name) => (name.endsWith(" loss") ? "y" : share(name) ? "metric" : name);
    const lines = names.map((name, at) => ({
      label: name, stroke: colours[at % colours.length], width: 2, scale: scale(name), spanGaps: true,
    }));
    const rounds = { ...axis, incrs: [1, 2, 5].flatMap((step) => [0, 1, 2, 3, 4, 5].map((power) => step * 10 ** power)).sort((a, b) => a - b) };
    const metric = { ...axis, scale: "metric", side: 1, grid: { show: false } };
    plot = new uPlot({
      width: box.clientWidth, height: 260, scales: { x: { time: false } },
      series: [{ label: "round" }, ...lines], axes: [rounds, axis, ...(lines.some((line) => line.scale === "metric") ? [metric] : [])],
    }, data, box);
  }
  document.addEventListener("htmx:afterSwap", draw);
  addEventListener("resize", () => plot?.setSize({ width: box.clientWidth, height: 260 }));
  dark.addEventListener("change", () => { plot?.destroy(); plot = null; drawn = ""; draw(); });
  draw();
});
