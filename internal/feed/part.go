package feed

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/weirmesh/weir/internal/model"
)

// typeURL is the type of the one kind of resource on the wire, a part.
const typeURL = "type.googleapis.com/weir.v1.Part"

// A part is the smallest unit that is sent: a listener, a route, a service, a certificate, or all splits of one root,
// whose order has a meaning. Its encoding is JSON: a model.Config that holds nothing else, with the certificate's key
// in the clear. A field that the receiver does not know makes the part unreadable: to ignore it could mean to let pass
// what a user forbade. Unused fields are not written, so a newer sender is understood as long as nothing new is used.

// wireConfig is model.Config as a part spells it.
type wireConfig struct {
	Listeners    []model.Listener  `json:"listeners,omitempty"`
	Routes       []model.Route     `json:"routes,omitempty"`
	Splits       []model.Split     `json:"splits,omitempty"`
	Services     []model.Service   `json:"services,omitempty"`
	Certificates []wireCertificate `json:"certificates,omitempty"`
}

// wireCertificate is model.Certificate with a key that shows itself.
type wireCertificate struct {
	Name  string `json:"name"`
	Chain string `json:"chain"`
	Key   string `json:"key"`
}

// encodePart appends the encoding of a part's content to b.
func encodePart(b *bytes.Buffer, content *model.Config) error {
	w := wireConfig{Listeners: content.Listeners, Routes: content.Routes, Splits: content.Splits, Services: content.Services}
	for _, c := range content.Certificates {
		w.Certificates = append(w.Certificates, wireCertificate{Name: c.Name, Chain: c.Chain, Key: c.Key.Reveal()})
	}
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	return e.Encode(&w)
}

// decodePart reads the content of the part of that name. Errors show nothing of the content of certificates.
func decodePart(name string, data []byte) (*model.Config, error) {
	var w wireConfig
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&w); err != nil {
		return nil, fmt.Errorf("part %q: %w", name, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("part %q: trailing data", name)
	}
	content := &model.Config{Listeners: w.Listeners, Routes: w.Routes, Splits: w.Splits, Services: w.Services}
	for _, c := range w.Certificates {
		content.Certificates = append(content.Certificates, model.Certificate{Name: c.Name, Chain: c.Chain, Key: model.Secret(c.Key)})
	}
	n := 0
	for p := range parts(content) {
		if got := string(appendName(nil, &p)); got != name {
			return nil, fmt.Errorf("part %q: holds %q", name, got)
		}
		n++
	}
	if n != 1 {
		return nil, fmt.Errorf("part %q: holds %d parts, want one", name, n)
	}
	return content, nil
}

// parts yields the content of each part of a configuration: what has one name and stands together. The contents share
// the configuration's memory.
func parts(c *model.Config) func(yield func(model.Config) bool) {
	return func(yield func(model.Config) bool) {
		_ = runs(c.Certificates, func(a, b *model.Certificate) bool { return a.Name == b.Name },
			func(s []model.Certificate) bool { return yield(model.Config{Certificates: s}) }) &&
			runs(c.Listeners, func(a, b *model.Listener) bool { return a.Name == b.Name },
				func(s []model.Listener) bool { return yield(model.Config{Listeners: s}) }) &&
			runs(c.Routes, func(a, b *model.Route) bool { return a.Ref == b.Ref },
				func(s []model.Route) bool { return yield(model.Config{Routes: s}) }) &&
			runs(c.Services, func(a, b *model.Service) bool { return a.Name == b.Name },
				func(s []model.Service) bool { return yield(model.Config{Services: s}) }) &&
			runs(c.Splits, func(a, b *model.Split) bool { return a.Root == b.Root },
				func(s []model.Split) bool { return yield(model.Config{Splits: s}) })
	}
}

// runs yields the longest pieces of s whose elements are alike, and tells whether all were taken.
func runs[T any](s []T, alike func(a, b *T) bool, yield func([]T) bool) bool {
	for from, i := 0, 1; i <= len(s); i++ {
		if i < len(s) && alike(&s[from], &s[i]) {
			continue
		}
		if !yield(s[from:i:i]) {
			return false
		}
		from = i
	}
	return true
}

// appendName appends the name of a part with that content: "listener/NAME", "route/KIND/NAMESPACE/NAME", with "#FIELD"
// behind it if the reference has a field, "service/NAME", "split/ROOT" or "certificate/NAME".
func appendName(b []byte, content *model.Config) []byte {
	switch {
	case len(content.Listeners) > 0:
		return append(append(b, "listener/"...), content.Listeners[0].Name...)
	case len(content.Routes) > 0:
		r := &content.Routes[0].Ref
		b = append(append(append(b, "route/"...), r.Kind...), '/')
		b = append(append(append(b, r.Namespace...), '/'), r.Name...)
		if r.Field != "" {
			b = append(append(b, '#'), r.Field...)
		}
		return b
	case len(content.Services) > 0:
		return append(append(b, "service/"...), content.Services[0].Name...)
	case len(content.Splits) > 0:
		return append(append(b, "split/"...), content.Splits[0].Root...)
	case len(content.Certificates) > 0:
		return append(append(b, "certificate/"...), content.Certificates[0].Name...)
	}
	return b
}

// hashOf is the version of a part with that encoding, and that of a configuration whose parts were added to h: 128 bits
// of SHA-256.
func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return shortHash(sum)
}

func shortHash(sum [sha256.Size]byte) string { return base64.RawURLEncoding.EncodeToString(sum[:16]) }
