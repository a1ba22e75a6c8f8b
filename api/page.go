package api

import (
	"embed"
	"net/http"
	"path"
)

// pageFS holds the files of the status page. They are static: the page has no data until its scripts have fetched them
// from the API, with the token that the user has entered.
//
//go:embed page
var pageFS embed.FS

// pageTypes are the content types of the page's files, by extension.
var pageTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
}

// pageFiles are the files of the status page, by path.
var pageFiles = func() map[string]string {
	all := map[string]string{"/": "page/index.html"}
	entries, _ := pageFS.ReadDir("page") // cannot fail: the folder is embedded
	for _, e := range entries {
		if e.Name() != "index.html" {
			all["/"+e.Name()] = "page/" + e.Name()
		}
	}
	return all
}()

// page serves a file of the status page.
func page(w http.ResponseWriter, r *http.Request) {
	file := pageFiles[r.URL.Path]
	w.Header().Set("Content-Type", pageTypes[path.Ext(file)])
	http.ServeFileFS(w, r, pageFS, file)
}
