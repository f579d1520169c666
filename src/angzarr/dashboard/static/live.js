// Shows the progress of a replay job as it happens. Without it the page reloads itself.
const place = document.querySelector("[data-live]");
if (place && window.EventSource) {
  const source = new EventSource(place.dataset.live);
  source.addEventListener("progress", (event) => {
    place.innerHTML = JSON.parse(event.data); // escaped by the template that wrote it
  });
  source.addEventListener("over", () => {
    source.close();
    window.location.reload();
  });
}
