package openapi_test

import (
	"os"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/openapi"
)

// TestRequestsOfRealDocuments judges requests by the roles of documents in testdata.
func TestRequestsOfRealDocuments(t *testing.T) {
	for name, requests := range map[string]struct{ allowed, denied string }{
		"petstore": {
			allowed: `GET /v1/pets|POST /v1/pets|GET /v1/pets/12|DELETE /v1/pets/12|GET /v1/%70ets/1|GET /v1/pets/1/photos/a%20b.png|GET /v1/pets/1/photos/a.jpeg|
				GET /v1/owners/123e4567-e89b-12d3-a456-426614174000|GET /v1/health`,
			denied: `GET /pets|GET /v1/pets/|HEAD /v1/pets|OPTIONS /v1/pets|PUT /v1/pets|GET /v1/pets/0|GET /v1/pets/-1|GET /v1/pets/a|GET /v1/pets/1/|POST /v1/pets/1|GET /v1/pets/1/photos/A.png|
				GET /v1/pets/1/photos/a.gif|GET /v1/pets/1/photos/aXpng|GET /v1/pets/1/photos/.png|GET /v1/owners/me|GET /v1/health/x|GET /v2/pets|GET /v1/v1/pets|GET /v1/pets/1%2F2`,
		},
		"swagger": {
			allowed: `GET /shop%20api/orders/ABC-1234|PUT /shop%20api/orders/ABC-12345|PATCH /shop%20api/orders/7|GET /shop%20api/orders/1,2,-3/csv|GET /shop%20api/orders/1%2C2/csv|
				GET /shop%20api/orders/1%202/ssv|GET /shop%20api/orders/a%7Cb/pipes`,
			denied: `GET /orders/ABC-1234|GET /shop+api/orders/ABC-1234|GET /shop%20api/orders/7|PATCH /shop%20api/orders/ABC-1234|GET /shop%20api/orders/xABC-1234|GET /shop%20api/orders/1%202/csv|GET /shop%20api/orders/1,2/ssv`,
		},
		"servers": {
			allowed: `GET /dev/v1/|GET /prod/v1/|GET /x.y/v2/|GET /path/a|POST /a`,
			denied:  `GET /|GET /v1/|GET /test/v1/|GET /xay/v2/|GET /dev/v1|GET /v3/|GET /v4/|GET /v5/|GET /v6/|GET /a|POST /path/a|GET /b|GET /relative/b`,
		},
		"styles": {
			allowed: `GET /simple/1,2|GET /simple-text/a|GET /simple-text/a,b%20c,d|GET /label.1|GET /label-list/.1,2|GET /label-explode/.1.2|GET /matrix/;v=1|GET /matrix-list/;v=1,2|GET /matrix-explode/;v=1;v=2|
				GET /two/a.b.json|GET /two/%C3%A9.xml|GET /range/1.5-2|GET /spaced%20out/%c3%a9/@me/(x)/true|GET /spaced%20out/%C3%A9/%40me/%28x%29/false`,
			denied: `GET /simple/1|GET /simple/1,2,|GET /simple-text/a,b,c,d,e|GET /label1|GET /label/1|GET /label-explode/.1,2|GET /matrix/1|GET /matrix/;w=1|GET /matrix-explode/;v=1,2|GET /two/a.|GET /two/.json|
				GET /two/a/b.json|GET /range/1-0|GET /range/1|GET /spaced%20out/e/@me/(x)/true|GET /spaced%20out/%C3%A9/@me/x/true`,
		},
		"lost": {
			allowed: `GET /look-integer/01|GET /lengths/ab|GET /both/aaaaaaa|GET /enum/c|GET /users/me|DELETE /users/me|GET /semicolon;v=1`,
			denied:  `GET /look-integer/a|GET /lengths/a|GET /lengths/%C3%A9|GET /both/b|GET /enum/a%2Fb|GET /enum/|GET /slash/a/b|GET /no-enum/a|GET /double/slash|GET /up|GET /greedy/a|GET /query|POST /users/me`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			document, err := os.ReadFile("testdata/" + name + ".yaml")
			if err != nil {
				t.Fatal(err)
			}
			r, err := openapi.Generate(document, openapi.Options{Resource: foo, Namespace: "shop", By: openapi.ByNone, Bind: []openapi.Bind{client}})
			if err != nil {
				t.Fatal(err)
			}
			may := judge(t, r.YAML())
			for list, want := range map[string]bool{requests.allowed: true, requests.denied: false} {
				for _, request := range strings.Split(list, "|") {
					method, path, ok := strings.Cut(strings.TrimSpace(request), " ")
					if !ok {
						t.Fatalf("%q is no request", request)
					}
					if allows(t, may, method, path) != want {
						t.Errorf("%s %s: allowed %v, want %v", method, path, !want, want)
					}
				}
			}
		})
	}
}
