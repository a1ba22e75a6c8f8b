package httpapi

import (
	"embed"
	"net/http"
)

// pageFS holds the files of the status page.
//
//go:embed page
var pageFS embed.FS

// pageFile returns the file of a path and its content type, or "".
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

// page serves the status page, and status 404 for any other path.
func page(w http.ResponseWriter, r *http.Request) {
	file, contentType := pageFile(r.URL.Path)
	if file == "" {
		respondError(w, http.StatusNotFound, "unknown path %s", r.URL.Path)
		return
	}
	w.Header().Set("Content-Type", contentType)
	http.ServeFileFS(w, r, pageFS, file)
}
