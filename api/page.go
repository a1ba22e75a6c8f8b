package api

import (
	"embed"
	"net/http"
	"path"
)

// pageFS holds the files of the status page. They are static: the page has no data until its
// scripts have asked the API for it, with the token that the user has entered.
//
//go:embed page
var pageFS embed.FS

// pageTypes are the content types of the page's files, by extension.
var pageTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
}

// pageFile returns the file of a path and its content type, or "".
func pageFile(of string) (file, contentType string) {
	if of == "/" {
		return "page/index.html", pageTypes[".html"]
	}
	file, contentType = "page"+of, pageTypes[path.Ext(of)]
	if f, err := pageFS.Open(file); err == nil && contentType != "" && path.Ext(of) != ".html" {
		f.Close()
		return file, contentType
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
