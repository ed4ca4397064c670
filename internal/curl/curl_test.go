package curl

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestACommandIsReadAsCurlReadsIt(t *testing.T) {
	agent := []string{"User-Agent: curl/8", "Accept: */*"}
	for _, c := range []struct {
		text, head string
		notes      int
		address    string
		port       int32
	}{
		{"GET http://s/x", "GET /x HTTP/1.1\r\nHost: s", 0, "s", 0},
		{"http://s:81/x?a=b#c", "GET /x?a=b HTTP/1.1\r\nHost: s:81", 0, "s", 81},
		{"$ curl 'http://s/x'", "GET /x HTTP/1.1\r\nHost: s\r\n" + strings.Join(agent, "\r\n"), 0, "s", 0},
		{"curl -H 'Host: t' -H 'Accept:' http://1.2.3.4/ | jq .", "GET / HTTP/1.1\r\nUser-Agent: curl/8\r\nHost: t", 1, "1.2.3.4", 0},
		{"curl -0 --data @file http://s/", "POST / HTTP/1.0\r\nHost: s\r\n" + strings.Join(agent, "\r\n") + "\r\nContent-Type: application/x-www-form-urlencoded", 1, "s", 0},
		{"curl --request-target '*' -X OPTIONS http://s/", "OPTIONS * HTTP/1.1\r\nHost: s\r\n" + strings.Join(agent, "\r\n"), 0, "s", 0},
		{"curl --resolve S:80:[::1] --connect-to s:80::8080 http://s/", "GET / HTTP/1.1\r\nHost: s\r\n" + strings.Join(agent, "\r\n"), 0, "::1", 8080},
		{"curl --connect-to s.:80:t:81 http://s./", "GET / HTTP/1.1\r\nHost: s.\r\n" + strings.Join(agent, "\r\n"), 0, "s.", 0},
	} {
		r, err := ParseText(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if head := string(r.Head()); head != c.head+"\r\n\r\n" || len(r.Notes) != c.notes || r.Address != c.address || r.Port != c.port {
			t.Errorf("%s: %q to %s port %d, notes %q", c.text, head, r.Address, r.Port, r.Notes)
		}
	}
	if r, err := Parse([]string{"tcp://db:5432"}); err != nil || r.Scheme != "tcp" || r.Method != "" || r.Port != 5432 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestMistakesInACommandAreNamed(t *testing.T) {
	for text, part := range map[string]string{
		"curl --no-such http://s/":           "--no-such",
		"curl -H":                            "-H needs a value",
		"curl --silent=1 http://s/":          "--silent takes no value",
		"curl -H nothing http://s/":          "want 'NAME: VALUE'",
		"curl ftp://s/":                      "want http://HOST/PATH",
		"curl http://s:99999/":               "99999",
		"curl http://s/ --from here":         "--from",
		"curl 'http://s/":                    "has no end",
		"curl \"http://s/$X\"":               "$X",
		"curl -X $'GET\\r\\nA: b' http://s":  "one line",
		"curl $'http://s/\\nA: b'":           "one line",
		"curl -A $'a\\nB: c' http://s/":      "one line",
		"curl -H $'A: b\\r\\nC: d' http://s": "one line",
	} {
		if _, err := ParseText(text); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v, want %q", text, err, part)
		}
	}
	for _, words := range [][]string{nil, {"GET"}, {"a", "b", "c"}} {
		if r, err := Parse(words); len(words) != 1 && !errors.Is(err, ErrOneURL) {
			t.Errorf("%q: %+v, %v", words, r, err)
		}
	}
}

// FuzzParse checks that any pasted text is parsed or rejected. A parsed one has a single head, with one line for each
// field.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"curl -sSk -H 'x-beta: yes' -d a=1 https://shop.example/order", `curl $'http://s/\u0041' --compressed -u me:pw -F a=b -T file`, "PUT http://[::1]:80/ -H a:b",
		"curl --resolve a:80:1.2.3.4 --connect-to ::b:81 http://a --url-query +x -G --data-urlencode 'c=d e'", "tcp://db:1", "curl -X $'A\\r\\nB' http://s",
		"curl -H $'A: b\\r\\nC: d' http://s",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseText(text)
		if err != nil || !r.Protocol().Requests() {
			return
		}
		head := r.Head()
		lines := bytes.Split(bytes.TrimSuffix(head, []byte("\r\n\r\n")), []byte("\r\n"))
		want := 1 + len(r.Headers)
		if r.ownHost {
			want++
		}
		if len(lines) != want || bytes.ContainsAny(bytes.Join(lines, nil), "\r\n") {
			t.Errorf("%q: %q", text, head)
		}
	})
}
