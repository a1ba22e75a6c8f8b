package httpapi

import (
	"embed"
	"net/http"
)

// pageFS holds the status page. It is read-only.
//
//go:embed page
var pageFS embed.FS

// pageFile returns the file that path serves and its type, or "".
func pageFile(path string) (file, contentType string) {
	switch path {
	case "/":
		return "page/index.html", "text/html; charset=utf-8"
	case "/page.css":
		return "page/page.css", "text/css; charset=utf-8"
	case "/page.js":
		return "page/page.js", "text/javascript; charset=utf-8"
	}
	return "", ""
}

// page serves the status page, and 404 for every other path.
func page(w http.ResponseWriter, r *http.Request) {
	file, contentType := pageFile(r.URL.Path)
	if file == "" {
		refuse(w, http.StatusNotFound, "there is nothing at %s", r.URL.Path)
		return
	}
	body, err := pageFS.ReadFile(file)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "%v", err)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.Write(body) // an error here is the caller's connection
}
