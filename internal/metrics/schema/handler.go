package schema

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// document is one that is served.
type document struct {
	body []byte
	etag string // also its hash
}

func newDocument(o object) *document {
	body, err := json.Marshal(o)
	if err != nil {
		panic("schema: a document cannot be written as JSON: " + err.Error()) // there is nothing in it that cannot
	}
	sum := sha256.Sum256(body)
	return &document{body, hex.EncodeToString(sum[:16])}
}

// documents are all, by their paths, made when somebody asks.
var documents = sync.OnceValue(func() map[string]*document {
	all := map[string]*document{"/openapi/v2": newDocument(v2())}
	roots := object{}
	for _, g := range groups {
		d, path := newDocument(v3(g)), "/openapi/v3/"+g.path()
		all[path] = d
		roots[g.path()] = object{"serverRelativeURL": path + "?hash=" + d.etag}
	}
	all["/openapi/v3"] = newDocument(object{"paths": roots})
	return all
})

// ServeHTTP answers requests for /openapi/v2, /openapi/v3 and /openapi/v3/apis/GROUP/VERSION; all others are not found.
func ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d := documents()[r.URL.Path]
	switch {
	case d == nil:
		http.NotFound(w, r)
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD are served", http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Etag", `"`+d.etag+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(d.body))
}
