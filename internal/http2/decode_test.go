package http2

import (
	"bytes"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"

	"github.com/weirmesh/weir/internal/http1"
)

// newDecoder has the usual bounds.
func newDecoder() *decoder {
	var d decoder
	cfg := Config{}
	cfg.setDefaults()
	d.init(&cfg)
	return &d
}

func blockOf(fields ...string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for i := 0; i < len(fields); i += 2 {
		e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return b.Bytes()
}

func TestMalformedHeadsAreRecognised(t *testing.T) {
	good := []string{":method", "GET", ":scheme", "https", ":authority", "a", ":path", "/"}
	with := func(more ...string) []string { return append(good[:len(good):len(good)], more...) }
	for name, test := range map[string]struct {
		kind   blockKind
		fields []string
		ok     bool
	}{
		"plain":                        {blockRequest, good, true},
		"with fields":                  {blockRequest, with("accept", "*/*", "x", ""), true},
		"without authority":            {blockRequest, []string{":method", "GET", ":scheme", "https", ":path", "/"}, true},
		"TE trailers":                  {blockRequest, with("te", "trailers"), true},
		"TE gzip":                      {blockRequest, with("te", "gzip"), false},
		"upper case":                   {blockRequest, with("Accept", "x"), false},
		"no name":                      {blockRequest, with("", "x"), false},
		"a name that is no token":      {blockRequest, with("a b", "x"), false},
		"a colon in a name":            {blockRequest, with("a:b", "x"), false},
		"CR in a value":                {blockRequest, with("a", "x\ry"), false},
		"LF in a value":                {blockRequest, with("a", "x\ny"), false},
		"NUL in a value":               {blockRequest, with("a", "x\x00y"), false},
		"space before a value":         {blockRequest, with("a", " x"), false},
		"space behind a value":         {blockRequest, with("a", "x\t"), false},
		"LF in a path":                 {blockRequest, []string{":method", "GET", ":scheme", "https", ":path", "/\nx"}, false},
		"connection":                   {blockRequest, with("connection", "close"), false},
		"keep-alive":                   {blockRequest, with("keep-alive", "x"), false},
		"proxy-connection":             {blockRequest, with("proxy-connection", "x"), false},
		"transfer-encoding":            {blockRequest, with("transfer-encoding", "chunked"), false},
		"upgrade":                      {blockRequest, with("upgrade", "x"), false},
		"pseudo behind others":         {blockRequest, []string{":method", "GET", "a", "b", ":scheme", "https", ":path", "/"}, false},
		"pseudo twice":                 {blockRequest, with(":path", "/"), false},
		"unknown pseudo":               {blockRequest, with(":x", "y"), false},
		"extended CONNECT":             {blockRequest, with(":protocol", "websocket"), false},
		"a status in a request":        {blockRequest, with(":status", "200"), false},
		"no method":                    {blockRequest, []string{":scheme", "https", ":path", "/"}, false},
		"no scheme":                    {blockRequest, []string{":method", "GET", ":path", "/"}, false},
		"no path":                      {blockRequest, []string{":method", "GET", ":scheme", "https"}, false},
		"empty path":                   {blockRequest, []string{":method", "GET", ":scheme", "https", ":path", ""}, false},
		"CONNECT":                      {blockRequest, []string{":method", "CONNECT", ":authority", "a:1"}, true},
		"CONNECT with a path":          {blockRequest, []string{":method", "CONNECT", ":authority", "a:1", ":path", "/"}, false},
		"CONNECT to nowhere":           {blockRequest, []string{":method", "CONNECT"}, false},
		"a length":                     {blockRequest, with("content-length", "5"), true},
		"the same length twice":        {blockRequest, with("content-length", "5", "content-length", "5"), true},
		"two lengths":                  {blockRequest, with("content-length", "5", "content-length", "6"), false},
		"a list of lengths":            {blockRequest, with("content-length", "5, 5"), false},
		"a signed length":              {blockRequest, with("content-length", "+5"), false},
		"a length that is too long":    {blockRequest, with("content-length", strings.Repeat("9", 19)), false},
		"an answer":                    {blockResponse, []string{":status", "200", "a", "b"}, true},
		"an answer without a status":   {blockResponse, []string{"a", "b"}, false},
		"a status that is none":        {blockResponse, []string{":status", "20"}, false},
		"a status below 100":           {blockResponse, []string{":status", "099"}, false},
		"a method in an answer":        {blockResponse, []string{":status", "200", ":method", "GET"}, false},
		"connection in an answer":      {blockResponse, []string{":status", "200", "connection", "close"}, false},
		"trailers":                     {blockTrailers, []string{"a", "b"}, true},
		"a pseudo-field in trailers":   {blockTrailers, []string{":path", "/"}, false},
		"no fields at all in trailers": {blockTrailers, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDecoder()
			if err := d.read(blockOf(test.fields...), test.kind, &Head{}, nil); err != nil {
				t.Fatal(err)
			}
			if ok := d.bad == ""; ok != test.ok {
				t.Errorf("%q", d.bad)
			}
		})
	}
}

func TestCookieCrumbsAreJoined(t *testing.T) {
	d := newDecoder()
	var h Head
	block := blockOf(":method", "GET", ":scheme", "http", ":path", "/", "cookie", "a=1", "x", "y", "cookie", "b=2", "cookie", "c=3", "z", "")
	if err := d.read(block, blockRequest, &h, nil); err != nil || d.bad != "" {
		t.Fatal(err, d.bad)
	}
	var got []string
	for _, f := range d.fields {
		got = append(got, f.Name+": "+f.Value)
	}
	if s := strings.Join(got, "\n"); s != "cookie: a=1; b=2; c=3\nx: y\nz: " {
		t.Errorf("%s", s)
	}
}

func TestFieldsOverTheBoundsAreLeftOut(t *testing.T) {
	base := []string{":method", "GET", ":scheme", "http", ":path", "/"}
	for name, more := range map[string][]string{
		"too many":  strings.Split(strings.Repeat("a,b,", DefaultMaxFields)+"a,b", ","),
		"too large": {"a", strings.Repeat("v", DefaultMaxHeader-200)},
	} {
		d := newDecoder()
		var h Head
		if err := d.read(blockOf(append(base[:len(base):len(base)], more...)...), blockRequest, &h, nil); err != nil {
			t.Fatal(err)
		}
		if name == "too large" {
			// What is over the bound is not even unpacked; the tables still agree.
			if d.tooLarge {
				t.Fatal("within the bound")
			}
			if err := d.read(blockOf(append(base[:len(base):len(base)], "a", strings.Repeat("v", DefaultMaxHeader-100))...), blockRequest, &h, nil); err != nil {
				t.Fatal(err)
			}
		}
		if !d.tooLarge || len(d.fields) > DefaultMaxFields {
			t.Errorf("%s: %d fields taken", name, len(d.fields))
		}
	}
}

func FuzzHeaderBlock(f *testing.F) {
	f.Add(blockOf(":method", "GET", ":scheme", "http", ":path", "/", "cookie", "a", "cookie", "b"), uint8(blockRequest))
	f.Add(blockOf(":status", "200", "content-length", "5"), uint8(blockResponse))
	f.Add(blockOf("x", "y"), uint8(blockTrailers))
	f.Add([]byte{0x82, 0x3f, 0xe1, 0x1f, 0x40, 1, 'x', 0x7f, 0}, uint8(blockRequest))
	f.Fuzz(func(t *testing.T, block []byte, kind uint8) {
		d := newDecoder()
		var h Head
		if d.read(block, blockKind(kind%4), &h, nil) != nil || d.bad != "" {
			return
		}
		size := 0
		for _, x := range d.fields {
			size += len(x.Name) + len(x.Value)
			if !http1.ValidFieldName(x.Name) || strings.ToLower(x.Name) != x.Name || !http1.ValidFieldValue(x.Value) || x.ID != http1.Identify(x.Name) {
				t.Errorf("field %+v", x)
			}
			switch x.ID {
			case http1.FieldConnection, http1.FieldTransferEncoding, http1.FieldUpgrade, http1.FieldKeepAlive:
				t.Errorf("field %+v", x)
			}
		}
		if size > DefaultMaxHeader || len(d.fields) > DefaultMaxFields {
			t.Errorf("%d fields of %d bytes", len(d.fields), size)
		}
		for _, s := range []string{h.Method, h.Scheme, h.Authority, h.Path} {
			if strings.ContainsAny(s, "\r\n\x00") {
				t.Errorf("pseudo-field %q", s)
			}
		}
	})
}
