package dataplane

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/weirmesh/weir/internal/proxy"
)

func TestFieldFlagsBecomeOptions(t *testing.T) {
	dir := t.TempDir()
	key := func(text string) string {
		name := filepath.Join(dir, "key")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for _, test := range []struct {
		args []string
		file string
		want proxy.Options // of what flags say
		err  string
	}{
		{nil, "", proxy.Options{MaxHops: 10, MaxPasses: 1}, ""},
		{[]string{"--via=off", "--via-name=edge.1", "--max-hops=3", "--max-passes=2", "--underscore-fields=reject"}, "",
			proxy.Options{Via: proxy.ViaOff, Pseudonym: "edge.1", MaxHops: 3, MaxPasses: 2, Underscores: proxy.UnderscoresRejected}, ""},
		{[]string{"--via=requests", "--underscore-fields=pass"}, " 0123456789abcdef\n",
			proxy.Options{Via: proxy.ViaRequests, MaxHops: 10, MaxPasses: 1, Underscores: proxy.UnderscoresPassed, SessionKey: []byte("0123456789abcdef")}, ""},
		{[]string{"--underscore-fields=drop"}, "", proxy.Options{MaxHops: 10, MaxPasses: 1, Underscores: proxy.UnderscoresDropped}, ""},
		{[]string{"--request-id=trusted", "--request-id-header=Trace-No", "--request-id-answer"}, "",
			proxy.Options{MaxHops: 10, MaxPasses: 1, RequestIDs: proxy.RequestIDsTrusted, RequestIDField: "Trace-No", AnswerRequestID: true}, ""},
		{[]string{"--request-id=off"}, "", proxy.Options{MaxHops: 10, MaxPasses: 1, RequestIDs: proxy.RequestIDsOff}, ""},
		{[]string{"--request-id-header=X_Id"}, "", proxy.Options{}, "--request-id-header"},
		{[]string{"--request-id-header=Connection"}, "", proxy.Options{}, "has another use"},
		{[]string{"--request-id-header=x-forwarded-port"}, "", proxy.Options{}, "has another use"},
		{[]string{"--request-id-header=Cookie"}, "", proxy.Options{}, "has another use"},
		{[]string{"--via-name=a b"}, "", proxy.Options{}, "--via-name"},
		{[]string{"--max-hops=0"}, "", proxy.Options{}, "--max-hops"},
		{[]string{"--max-passes=-1"}, "", proxy.Options{}, "--max-passes"},
		{nil, "short\n", proxy.Options{}, "5 bytes"},
		{[]string{"--session-key-file=" + dir + "/none"}, "", proxy.Options{}, "--session-key-file"},
	} {
		o := newFieldFlags()
		f := pflag.NewFlagSet("test", pflag.ContinueOnError)
		o.flags(f)
		if test.file != "" {
			test.args = append(test.args, "--session-key-file="+key(test.file))
		}
		if err := f.Parse(test.args); err != nil {
			t.Fatal(err)
		}
		var got proxy.Options
		err := o.apply(&got)
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%v: %v, want an error of %s", test.args, err, test.err)
			}
			continue
		}
		w := test.want
		if w.RequestIDField == "" {
			w.RequestIDField = "X-Request-Id"
			if len(test.args) == 0 || test.args[0] != "--request-id=off" {
				w.RequestIDs = proxy.RequestIDsMissing
			}
		}
		if got.RequestIDs != w.RequestIDs || got.RequestIDField != w.RequestIDField || got.AnswerRequestID != w.AnswerRequestID {
			t.Errorf("%v: %+v", test.args, got)
		}
		if err != nil || got.Via != w.Via || got.Pseudonym != w.Pseudonym || got.MaxHops != w.MaxHops || got.MaxPasses != w.MaxPasses ||
			got.Underscores != w.Underscores || string(got.SessionKey) != string(w.SessionKey) {
			t.Errorf("%v: %+v, %v", test.args, got, err)
		}
	}
}
