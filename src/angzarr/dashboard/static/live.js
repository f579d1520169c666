// Shows a part of a page as it changes. Without it the page reloads itself.
const place = document.querySelector("[data-live]");
if (place && window.EventSource) {
  const source = new EventSource(place.dataset.live);
  source.addEventListener("progress", (event) => {
    const held = place.contains(document.activeElement) && document.activeElement.href;
    place.innerHTML = JSON.parse(event.data); // escaped by the template that wrote it
    if (held) [...place.querySelectorAll("a")].find((link) => link.href === held)?.focus();
  });
  source.addEventListener("over", () => {
    source.close();
    window.location.reload();
  });
}
