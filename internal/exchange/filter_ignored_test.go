package exchange

import (
	"testing"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/model"
)

// TestFindingsNameTheFieldsThatFiltersLeaveAlone compares model's list with what the proxy does.
func TestFindingsNameTheFieldsThatFiltersLeaveAlone(t *testing.T) {
	names := []string{
		"X-Any", "Date", "Server", "Cookie", "Expect", "Proxy-Authorization", "Proxy-Authenticate", "Forwarded", "X-Forwarded-For", "x_any",
		"connection", "Content-Length", "host", "HTTP2-Settings", "Keep-Alive", "Proxy-Connection", "TE", "Trailer", "Transfer-Encoding", "Upgrade", "Via", "WEIR-VIA",
	}
	for _, id := range framing {
		found := false
		for _, name := range names {
			found = found || http1.Identify(name) == id
		}
		if !found {
			t.Errorf("no name of field %d is tried", id)
		}
	}
	for _, name := range names {
		for _, edit := range []*model.HeaderEdit{
			{Set: []model.HeaderValue{{Name: name, Value: "a.example"}}}, {Add: []model.HeaderValue{{Name: name, Value: "a.example"}}}, {Remove: []string{name}},
		} {
			request, response := compileRequestEdit(edit), compileEdit(edit)
			effect := func(e *headerEdit) bool { return len(e.add)+len(e.drop) > 0 }
			if ignored := len(edit.Ignored(true)) > 0; ignored == (effect(request) || request.host != "") {
				t.Errorf("request %+v: ignored %v, done %+v", edit, ignored, request)
			}
			if ignored := len(edit.Ignored(false)) > 0; ignored == effect(response) {
				t.Errorf("response %+v: ignored %v, done %+v", edit, ignored, response)
			}
		}
	}
}
