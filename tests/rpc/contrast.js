// Text of the page whose contrast to what lies behind it is below WCAG 2.1's level AA (1.4.3: 4.5, or 3 for large text):
// "selector colour on colour" -> [ratio, what it says]. Colours are drawn on a canvas, which knows every way to write one.
(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.backgroundColor = "Canvas"; // what lies behind a page that says nothing of it
  const canvasColour = rgba(getComputedStyle(probe).backgroundColor);
  probe.remove();
  const over = (top, below) => [0, 1, 2].map((i) => (top[i] * top[3] + below[i] * (255 - top[3])) / 255);
  const background = (element) => {
    const layers = [];
    for (let e = element; e && layers.at(-1)?.[3] !== 255; e = e.parentElement) layers.push(rgba(getComputedStyle(e).backgroundColor));
    return layers.reduceRight((below, top) => over(top, below), canvasColour);
  };
  const linear = (v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const result = {};
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text; (text = texts.nextNode()); ) {
    const element = text.parentElement, box = element.getBoundingClientRect(), style = getComputedStyle(element);
    const isShown = element.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && box.width * box.height;
    if (!text.data.trim() || !isShown) continue;
    const behind = background(element), colour = over(rgba(style.color), behind), size = parseFloat(style.fontSize);
    const [dark, light] = [luminance(behind), luminance(colour)].sort((a, b) => a - b), ratio = (light + 0.05) / (dark + 0.05);
    const isLarge = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if (ratio >= (isLarge ? 3 : 4.5)) continue;
    const name = `${element.tagName}.${element.getAttribute("class")} ${style.color} on ${behind.map(Math.round)}`;
    result[name] ??= [ratio.toFixed(2), text.data.trim().slice(0, 40)];
  }
  return result;
})();
