package rest

import (
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// form is how an answer is written.
type form struct {
	// as is what clients call it, as in "application/json;as=Table;g=meta.k8s.io;v=v1"; zero is the object as it is.
	as, group, version string
}

// The forms that there are.
var (
	whole     = form{}
	table     = form{"Table", "meta.k8s.io", "v1"}
	discovery = form{"APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2"}
)

// contentType is the value of a response's field.
func (f form) contentType() string {
	if f == discovery { // by which clients tell it from the older one; a Table is told by its kind
		return "application/json;g=" + f.group + ";v=" + f.version + ";as=" + f.as
	}
	return "application/json"
}

// Bounds of the field Accept.
const (
	maxAccept  = 4096 // bytes
	maxAccepts = 64   // media types
)

// accepted picks the form that a client likes most of those offered; whole is always offered. ok is false if it accepts
// none: protobuf and YAML are not spoken. A field that is absent, or longer than any client's, accepts anything.
func accepted(header http.Header, offered ...form) (f form, ok bool) {
	field := strings.Join(header["Accept"], ",")
	if strings.TrimSpace(field) == "" || len(field) > maxAccept {
		return whole, true
	}
	best := 0.0
	for i, element := range strings.Split(field, ",") {
		if i == maxAccepts {
			break
		}
		media, parameters, err := mime.ParseMediaType(element)
		if err != nil || media != "application/json" && media != "application/*" && media != "*/*" {
			continue
		}
		this := form{parameters["as"], parameters["g"], parameters["v"]}
		if this.as == "" {
			this = whole
		}
		if q := quality(parameters["q"]); q > best && (this == whole || slices.Contains(offered, this)) {
			f, best = this, q
		}
	}
	return f, best > 0
}

// quality is how much a media type is liked, from 0 to 1.
func quality(text string) float64 {
	q, err := strconv.ParseFloat(text, 64)
	if err != nil || !(q >= 0 && q <= 1) {
		return 1
	}
	return q
}
