package claim

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

var web = Claims{Pod: "web-1", UID: "u", Owners: []Owner{{"ReplicaSet", "web-5d"}, {"Deployment", "web"}}}

func with(extensions ...pkix.Extension) *x509.Certificate {
	return &x509.Certificate{Extensions: extensions}
}

func TestClaimsComeBackAsTheyWere(t *testing.T) {
	for _, c := range []Claims{{}, web, {Pod: strings.Repeat("a", 253)}} {
		x, err := c.Extension()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Of(with(pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 17}}, x))
		if err != nil || !reflect.DeepEqual(got, c) {
			t.Errorf("%+v: %+v, %v", c, got, err)
		}
	}
	if got, err := Of(with()); err != nil || !reflect.DeepEqual(got, Claims{}) {
		t.Errorf("without an extension: %+v, %v", got, err)
	}
}

func TestClaimsThatAreNotWholeAreNone(t *testing.T) {
	text := func(s string) pkix.Extension {
		value, err := asn1.MarshalWithParams(s, "utf8")
		if err != nil {
			t.Fatal(err)
		}
		return pkix.Extension{Id: ID, Value: value}
	}
	good, _ := web.Extension()
	for name, c := range map[string]*x509.Certificate{
		"twice": with(good, good), "no JSON": with(text("{")), "no object": with(text("[]")), "two objects": with(text("{}{}")), "another type": with(text(`{"pod":7}`)),
		"no ASN.1": with(pkix.Extension{Id: ID, Value: []byte("x")}), "more behind": with(pkix.Extension{Id: ID, Value: append(good.Value[:len(good.Value):len(good.Value)], 0)}),
		"too long": with(text(`{"pod":"` + strings.Repeat("a", maxSize) + `"}`)), "a long name": with(text(`{"pod":"` + strings.Repeat("a", 254) + `"}`)),
		"owners without a pod": with(text(`{"owners":[{"kind":"a","name":"b"}]}`)), "an owner without a name": with(text(`{"pod":"a","owners":[{"kind":"a"}]}`)),
		"many owners": with(text(`{"pod":"a","owners":[` + strings.TrimSuffix(strings.Repeat(`{"kind":"a","name":"b"},`, 9), ",") + `]}`)),
	} {
		if got, err := Of(c); err == nil || !reflect.DeepEqual(got, Claims{}) && got.check() == nil {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if got, err := Of(with(text(`{"pod":"a","new":1}`))); err != nil || got.Pod != "a" {
		t.Errorf("with a member that is not known: %+v, %v", got, err)
	}
	if _, err := (Claims{Pod: "a", Owners: []Owner{{}}}).Extension(); err == nil {
		t.Error("claims were made that cannot be read")
	}
}

func FuzzOf(f *testing.F) {
	for _, s := range []string{`{}`, `{"pod":"a"}`, `{"pod":"a","owners":[{"kind":"b","name":"c"}]}`} {
		value, err := asn1.MarshalWithParams(s, "utf8")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		got, err := Of(with(pkix.Extension{Id: ID, Value: value}))
		if err != nil {
			return
		}
		x, err := got.Extension()
		if err != nil {
			t.Skip("longer in another form")
		}
		if again, err := Of(with(x)); err != nil || fmt.Sprint(again) != fmt.Sprint(got) {
			t.Fatalf("%+v, then %+v, %v", got, again, err)
		}
	})
}
