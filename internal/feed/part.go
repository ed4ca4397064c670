package feed

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/weirmesh/weir/internal/model"
)

// typeURL is the type of the one kind of resource on the wire, a part.
const typeURL = "type.googleapis.com/weir.v1.Part"

// A part is the smallest thing that is sent: a listener, a route, a service, a certificate, or all splits of one root,
// whose order has a meaning. Its encoding is JSON: a model.Config that holds nothing else, with the certificate's key in
// the clear, and with some kinds of routes spelled as wireRoute says. A field that the receiver does not know makes the part one that it cannot read: to leave out what it does
// not understand could mean to let pass what a user forbade. Fields that are not used are not written, so a newer sender
// is understood as long as nothing new is used.
//
// Routes that share a reference share a part, as the model does not forbid them.

// wireConfig is model.Config as a part spells it: lists named here are spelled otherwise, and hide those of the model.
type wireConfig struct {
	*model.Config
	Routes       []wireRoute       `json:"routes,omitempty"`
	Certificates []wireCertificate `json:"certificates,omitempty"`
}

// wireRoute is model.Route with the kinds gRPC and TCP spelled as before there were kinds: proxies and control planes of such
// releases, and their state files, know them so. Other kinds are spelled as the model spells them, which makes the part one that
// such a proxy cannot read.
type wireRoute struct {
	GRPC bool `json:"grpc,omitempty"`
	TCP  bool `json:"tcp,omitempty"`
	model.Route
}

// toWire spells a route for the wire.
func toWire(r model.Route) wireRoute {
	w := wireRoute{Route: r}
	switch r.Kind {
	case model.RouteGRPC:
		w.GRPC, w.Kind = true, ""
	case model.RouteTCP:
		w.TCP, w.Kind = true, ""
	}
	return w
}

// route reads a route from the wire. Both spellings of a kind are good; one of each is not.
func (w *wireRoute) route() (model.Route, error) {
	r := w.Route
	switch {
	case !w.GRPC && !w.TCP:
	case w.GRPC && w.TCP || r.Kind != "":
		return r, fmt.Errorf("route %s has more than one kind", r.Ref)
	case w.GRPC:
		r.Kind = model.RouteGRPC
	default:
		r.Kind = model.RouteTCP
	}
	return r, nil
}

// wireCertificate is model.Certificate with a key that shows itself.
type wireCertificate struct {
	Name  string `json:"name"`
	Chain string `json:"chain"`
	Key   string `json:"key"`
}

// encodePart appends the encoding of a part's content to b.
func encodePart(b *bytes.Buffer, content *model.Config) error {
	w := wireConfig{Config: content}
	for _, r := range content.Routes {
		w.Routes = append(w.Routes, toWire(r))
	}
	for _, c := range content.Certificates {
		w.Certificates = append(w.Certificates, wireCertificate{Name: c.Name, Chain: c.Chain, Key: c.Key.Reveal()})
	}
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	return e.Encode(&w)
}

// decodePart reads the content of the part of that name. Errors show nothing of the content of certificates.
func decodePart(name string, data []byte) (*model.Config, error) {
	content := new(model.Config)
	w := wireConfig{Config: content}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&w); err != nil {
		return nil, fmt.Errorf("part %q: %w", name, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("part %q: trailing data", name)
	}
	for i := range w.Routes {
		r, err := w.Routes[i].route()
		if err != nil {
			return nil, fmt.Errorf("part %q: %w", name, err)
		}
		content.Routes = append(content.Routes, r)
	}
	for _, c := range w.Certificates {
		content.Certificates = append(content.Certificates, model.Certificate{Name: c.Name, Chain: c.Chain, Key: model.Secret(c.Key)})
	}
	n := 0
	for l, p := range parts(content) {
		if got := string(appendName(nil, l, p)); got != name {
			return nil, fmt.Errorf("part %q: holds %q", name, got)
		}
		n++
	}
	if n != 1 {
		return nil, fmt.Errorf("part %q: holds %d parts, want one", name, n)
	}
	return content, nil
}

// lists are those of the model in the order of their parts' names.
var lists = slices.SortedFunc(slices.Values(model.Lists[:]), func(a, b model.List) int { return cmp.Compare(a.Element(), b.Element()) })

// parts yields each part of a configuration, what has one name and stands together: its list, and its content. The
// contents share the configuration's memory; a yielded one is only valid until the next.
func parts(c *model.Config) iter.Seq2[model.List, *model.Config] {
	return func(yield func(model.List, *model.Config) bool) {
		for _, l := range lists {
			if l.Len(c) == 0 {
				continue // most lists of a part
			}
			for content := range l.Pieces(c) {
				if !yield(l, content) {
					return
				}
			}
		}
	}
}

// listOf is the place in lists of the one that a part of that name is of, -1 for none.
func listOf(name string) int {
	element, _, _ := strings.Cut(name, "/")
	return slices.IndexFunc(lists, func(l model.List) bool { return l.Element() == element })
}

// appendName appends the name of a part with that content: what an element of the list is called, "/", and the key that
// its elements share.
func appendName(b []byte, l model.List, content *model.Config) []byte {
	return l.AppendKey(append(append(b, l.Element()...), '/'), content)
}

// hashOf is the version of a part with that encoding, and that of a configuration whose parts were added to h: 128 bits
// of SHA-256.
func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return shortHash(sum)
}

func shortHash(sum [sha256.Size]byte) string { return base64.RawURLEncoding.EncodeToString(sum[:16]) }
