// The search of the site. It works from disk too: the texts are a script, since a page from disk may fetch no file.
(function () {
  const field = document.getElementById("mkdocs-search-query");
  const results = document.getElementById("mkdocs-search-results");
  if (!field || !results) return;

  const loaded = (name) =>
    new Promise((done) => {
      const script = document.createElement("script");
      script.src = `${base_url}/search/${name}`;
      script.onload = done;
      document.head.append(script);
    });

  const element = (name, text) => Object.assign(document.createElement(name), { textContent: text });

  function found(index, words) {
    return index.query((query) =>
      lunr.tokenizer(words).forEach((token) => {
        query.term(token.toString(), { boost: 10 });
        query.term(token.toString(), { usePipeline: false, wildcard: lunr.Query.wildcard.TRAILING });
      })
    );
  }

  function article({ location, title, text }, page) {
    const name = page.title === title ? title : `${page.title}: ${title}`;
    const link = Object.assign(element("a", name), { href: `${base_url}/${location}` });
    const heading = document.createElement("h3");
    heading.append(link);
    const made = document.createElement("article");
    made.append(heading, element("p", text.slice(0, 200)));
    return made;
  }

  Promise.all([loaded("lunr.js"), loaded("texts.js")]).then(() => {
    const places = new Map(texts_of_the_site.map((one) => [one.location, one]));
    const index = lunr(function () {
      this.ref("location");
      this.field("title", { boost: 5 });
      this.field("text");
      texts_of_the_site.forEach((one) => this.add(one));
    });
    const show = () => {
      const pages = found(index, field.value.trim()).map(({ ref }) =>
        article(places.get(ref), places.get(ref.split("#")[0]))
      );
      results.replaceChildren(...(pages.length ? pages.slice(0, 30) : [element("p", "Nothing was found.")]));
    };
    field.value = new URLSearchParams(window.location.search).get("q") || "";
    field.addEventListener("input", show);
    show();
  });
})();
