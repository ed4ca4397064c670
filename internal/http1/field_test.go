package http1

import (
	"net/http"
	"strings"
	"testing"
)

func TestFieldsAreIdentifiedInAnyCase(t *testing.T) {
	for id, name := range fieldNames {
		for _, spelled := range []string{name, strings.ToUpper(name), http.CanonicalHeaderKey(name)} {
			if got := Identify(spelled); got != FieldID(id) {
				t.Errorf("%q is %d, not %d", spelled, got, id)
			}
		}
		if name == "" {
			continue
		}
		for i := range name {
			for _, c := range []byte("!#$%&'*+-.^_`|~09azAZ") {
				near := name[:i] + string(c) + name[i+1:]
				want := FieldOther
				if strings.EqualFold(near, name) {
					want = FieldID(id)
				} else if strings.ContainsRune("!#$%&'*+.^_`|~", rune(c)) {
					want = FieldIrregular
				}
				if got := Identify(near); got != want && !(want == FieldOther && strings.EqualFold(near, fieldNames[got])) {
					t.Errorf("%q is taken for %q", near, fieldNames[got])
				}
			}
		}
	}
	if Identify(strings.Repeat("a", 100)) != FieldOther {
		t.Error("a long name is known")
	}
}

func TestHopByHopFieldsAreKnown(t *testing.T) {
	fields := []Field{{Name: "Connection", Value: "close, X-Drop ,host, Content-Length,x-forwarded-for, X-Forwarded-User, Authorization"}}
	for name, want := range map[string]bool{
		"Connection": true, "keep-alive": true, "Proxy-Connection": true, "TE": true, "Transfer-Encoding": true, "Upgrade": true,
		"Proxy-Authorization": true, "Proxy-Authenticate": true, "HTTP2-Settings": true, "Weir-Undelivered": true, "x-drop": true, "Authorization": true,
		"Trailer": false, "X-Keep": false, "Host": false, "Content-Length": false, "X-Forwarded-For": false, "X-Forwarded-User": false,
	} {
		if got := HopByHop(&Field{Name: name}, fields); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestListsAreSearchedByMember(t *testing.T) {
	for _, c := range []struct {
		list, token string
		want        bool
	}{
		{"a", "A", true}, {" a ,\tb ", "b", true}, {"ab", "a", false}, {"a b", "a", false}, {",,a,,", "a", true}, {"", "a", false}, {"a;q=1", "a", false},
	} {
		if got := HasToken(c.list, c.token); got != c.want {
			t.Errorf("%q in %q: %v", c.token, c.list, got)
		}
	}
}

func TestEqualFoldIsOfASCIIOnly(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"", "", true}, {"aZ-0", "Az-0", true}, {"a", "b", false}, {"a", "aa", false}, {"@", "`", false}, {"[", "{", false}, {"\u212a", "k", false}, {"-", "\r", false},
	} {
		if got := EqualFold(c.a, c.b); got != c.want {
			t.Errorf("%q, %q: %v", c.a, c.b, got)
		}
	}
}

func TestNamesAndValuesAreChecked(t *testing.T) {
	for s, want := range map[string]bool{"": false, "a": true, "X-Y_z!#$%&'*+.^`|~9": true, "a b": false, "a:": false, "\xe9": false, "a\x00": false, "(a)": false} {
		if ValidToken(s) != want || ValidFieldName(s) != want {
			t.Errorf("token %q: not %v", s, want)
		}
	}
	for s, want := range map[string]bool{"": true, "a\tb \xff": true, " a": false, "a\t": false, "a\r\nb": false, "a\nb": false, "\x7f": false, "\x00": false} {
		if ValidFieldValue(s) != want {
			t.Errorf("value %q: not %v", s, want)
		}
	}
}

func TestGetFindsTheFirst(t *testing.T) {
	fields := []Field{{Name: "A", Value: "1"}, {Name: "b", Value: "2", ID: FieldHost}, {Name: "a", Value: "3"}}
	if v, ok := Get(fields, "a"); v != "1" || !ok {
		t.Error(v, ok)
	}
	if v, ok := Get(fields, "c"); v != "" || ok {
		t.Error(v, ok)
	}
	if v, ok := GetID(fields, FieldHost); v != "2" || !ok {
		t.Error(v, ok)
	}
	if _, ok := GetID(fields, FieldDate); ok {
		t.Error("found a field that is not there")
	}
}

// Get gives the value of the first field called name, without regard to case.
func Get(fields []Field, name string) (value string, ok bool) {
	for i := range fields {
		if f := &fields[i]; len(f.Name) == len(name) && EqualFold(f.Name, name) {
			return f.Value, true
		}
	}
	return "", false
}
