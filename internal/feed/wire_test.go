package feed

import (
	"bytes"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
)

// TestTheWireFormIsTheOneOfEarlierReleases holds names, encodings and versions of parts byte by byte: proxies and control planes of other releases
// compare versions, and a part whose encoding differs is sent to every proxy again.
func TestTheWireFormIsTheOneOfEarlierReleases(t *testing.T) {
	ref := model.Ref{Kind: "Gateway", Namespace: "n", Name: "g", Field: "spec.listeners[0]"}
	leaves := []model.Leaf{{Service: "n/b:80", Weight: 1}}
	c := &model.Config{
		Certificates: []model.Certificate{{Name: "n/c", Chain: "<chain>\n", Key: "key & all"}},
		Listeners:    []model.Listener{{Name: "n/g/a", Ref: ref, Owner: "n/g", Port: 80, Protocol: model.HTTP, Hostname: "*.example"}},
		Routes: []model.Route{
			{Ref: model.Ref{Kind: "HTTPRoute", Namespace: "n", Name: "r"}, Created: time.Unix(1, 0).UTC(), ClientCertificate: "n/c",
				Attachments: []model.Attachment{{Listener: "n/g/a", Hostnames: []string{"*"}}}},
			{Ref: model.Ref{Kind: "HTTPRoute", Namespace: "n", Name: "r"}, Attachments: []model.Attachment{{Listener: "n/g/b", Hostnames: []string{"*"}}}},
			{Ref: model.Ref{Kind: "R", Name: "r", Field: "spec.x"}, Kind: model.RouteTCP},
		},
		Services: []model.Service{{Name: "n/b:80", Protocol: model.H2C, Endpoints: []model.Endpoint{{Address: "10.0.0.1:80"}}}},
		Splits:   []model.Split{{Root: "n/a:80", Ref: model.Ref{Kind: "S", Name: "x"}, Leaves: leaves}, {Root: "n/a:80", Ref: model.Ref{Kind: "S", Name: "w"}, Leaves: leaves}},
	}
	s, err := newSnapshot(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	for _, p := range s.parts {
		got.WriteString(p.name + " " + p.version + " " + string(p.resource.Resource.Value))
	}
	const want = `certificate/n/c skeoauepr6DGsfxLl-TUig {"certificates":[{"name":"n/c","chain":"<chain>\n","key":"key & all"}]}
listener/n/g/a PlGMBic0pYyQN0f3veCRTg {"listeners":[{"name":"n/g/a","ref":{"kind":"Gateway","namespace":"n","name":"g","field":"spec.listeners[0]"},"gateway":"n/g","port":80,"protocol":"http","hostname":"*.example"}]}
route/HTTPRoute/n/r 9FR0Py92yH4ug4fBOAY8uw {"routes":[{"ref":{"kind":"HTTPRoute","namespace":"n","name":"r"},"created":"1970-01-01T00:00:01Z","clientCertificate":"n/c","attachments":[{"listener":"n/g/a","hostnames":["*"]}],"rules":null},{"ref":{"kind":"HTTPRoute","namespace":"n","name":"r"},"attachments":[{"listener":"n/g/b","hostnames":["*"]}],"rules":null}]}
route/R//r#spec.x y15pm4gGolFJ5Aq3Y-JVvA {"routes":[{"tcp":true,"ref":{"kind":"R","name":"r","field":"spec.x"},"attachments":null,"rules":null}]}
service/n/b:80 g2rlAPwKtLqdd8J0Gv8R6w {"services":[{"name":"n/b:80","ref":{"kind":"","name":""},"protocol":"h2c","endpoints":[{"address":"10.0.0.1:80"}]}]}
split/n/a:80 eVEKqREsKKad4n4yAXwqMg {"splits":[{"ref":{"kind":"S","name":"x"},"root":"n/a:80","leaves":[{"ref":{"kind":"","name":""},"service":"n/b:80","weight":1}]},{"ref":{"kind":"S","name":"w"},"root":"n/a:80","leaves":[{"ref":{"kind":"","name":""},"service":"n/b:80","weight":1}]}]}
`
	if got.String() != want {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want)
	}
	if s.version != "rLxt2RzZPPDSbzlbh9KxeA" {
		t.Errorf("the configuration has the version %s", s.version)
	}
}
