package dataplane

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/weirmesh/weir/internal/exchange"
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
		want exchange.Options // of what flags say
		err  string
	}{
		{nil, "", exchange.Options{MaxHops: 10, MaxPasses: 1}, ""},
		{[]string{"--via=off", "--via-name=edge.1", "--max-hops=3", "--max-passes=2", "--underscore-fields=reject"}, "",
			exchange.Options{Via: exchange.ViaOff, Pseudonym: "edge.1", MaxHops: 3, MaxPasses: 2, Underscores: exchange.UnderscoresRejected}, ""},
		{[]string{"--via=requests", "--underscore-fields=pass"}, " 0123456789abcdef\n",
			exchange.Options{Via: exchange.ViaRequests, MaxHops: 10, MaxPasses: 1, Underscores: exchange.UnderscoresPassed, SessionKey: []byte("0123456789abcdef")}, ""},
		{[]string{"--underscore-fields=drop"}, "", exchange.Options{MaxHops: 10, MaxPasses: 1, Underscores: exchange.UnderscoresDropped}, ""},
		{[]string{"--request-id=trusted", "--request-id-header=Trace-No", "--request-id-answer"}, "",
			exchange.Options{MaxHops: 10, MaxPasses: 1, RequestIDs: exchange.RequestIDsTrusted, RequestIDField: "Trace-No", AnswerRequestID: true}, ""},
		{[]string{"--request-id=off"}, "", exchange.Options{MaxHops: 10, MaxPasses: 1, RequestIDs: exchange.RequestIDsOff}, ""},
		{[]string{"--request-id-header=X_Id"}, "", exchange.Options{}, "--request-id-header"},
		{[]string{"--request-id-header=Connection"}, "", exchange.Options{}, "has another use"},
		{[]string{"--request-id-header=x-forwarded-port"}, "", exchange.Options{}, "has another use"},
		{[]string{"--request-id-header=Cookie"}, "", exchange.Options{}, "has another use"},
		{[]string{"--via-name=a b"}, "", exchange.Options{}, "--via-name"},
		{[]string{"--max-hops=0"}, "", exchange.Options{}, "--max-hops"},
		{[]string{"--max-passes=-1"}, "", exchange.Options{}, "--max-passes"},
		{nil, "short\n", exchange.Options{}, "5 bytes"},
		{[]string{"--session-key-file=" + dir + "/none"}, "", exchange.Options{}, "--session-key-file"},
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
				w.RequestIDs = exchange.RequestIDsMissing
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
