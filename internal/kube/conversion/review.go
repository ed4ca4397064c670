package conversion

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"github.com/weirmesh/weir/api/convert"
)

// maxMessage bounds the text of a failure, in bytes: anyone can have written the names and values in it.
const maxMessage = 2048

// Review answers a ConversionReview of apiextensions.k8s.io/v1. An object that cannot be converted fails the review, as
// the API requires, with a message that names the object and the field. The error is for a body that is not such a
// review.
func Review(kinds []convert.Kind, body []byte) (*apiextensionsv1.ConversionReview, error) {
	var in struct {
		metav1.TypeMeta
		Request *struct {
			UID               types.UID
			DesiredAPIVersion string
			Objects           json.RawMessage // decoded one by one
		}
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, fmt.Errorf("not a ConversionReview: %w", err)
	}
	if want := apiextensionsv1.SchemeGroupVersion.String(); in.APIVersion != want || in.Kind != "ConversionReview" {
		return nil, fmt.Errorf("apiVersion and kind: must be %s ConversionReview", want)
	}
	if in.Request == nil {
		return nil, errors.New("request: missing")
	}
	out := &apiextensionsv1.ConversionReview{TypeMeta: in.TypeMeta, Response: &apiextensionsv1.ConversionResponse{
		UID: in.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}, ConvertedObjects: []runtime.RawExtension{},
	}}
	group, version, ok := strings.Cut(in.Request.DesiredAPIVersion, "/")
	if !ok {
		return nil, errors.New("request.desiredAPIVersion: must be group/version")
	}
	if len(in.Request.Objects) == 0 {
		return out, nil
	}
	objects := json.NewDecoder(bytes.NewReader(in.Request.Objects))
	if t, err := objects.Token(); err != nil || t != json.Delim('[') {
		return nil, errors.New("request.objects: must be a list")
	}
	for i := 0; objects.More(); i++ {
		var raw json.RawMessage
		err := objects.Decode(&raw)
		if err == nil {
			raw, err = object(kinds, raw, group, version)
		}
		if err != nil {
			out.Response.ConvertedObjects = []runtime.RawExtension{}
			out.Response.Result = metav1.Status{
				Status: metav1.StatusFailure, Reason: metav1.StatusReasonInvalid,
				Message: shortened(fmt.Sprintf("object %d: %v", i, err)),
			}
			return out, nil
		}
		out.Response.ConvertedObjects = append(out.Response.ConvertedObjects, runtime.RawExtension{Raw: raw})
	}
	return out, nil
}

// object converts one.
func object(kinds []convert.Kind, raw []byte, group, version string) ([]byte, error) {
	var u map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &u); err != nil {
		return nil, err
	}
	name, _ := u["kind"].(string)
	for _, k := range kinds {
		if k.Group != group || k.Name != name {
			continue
		}
		which := called(u)
		if err := k.Change(u, version); err != nil {
			return nil, fmt.Errorf("%s %s to %s: %w", name, which, version, err)
		}
		return json.Marshal(u)
	}
	return nil, fmt.Errorf("%s of %s: no conversion for this kind", name, group)
}

// called is the namespace and name of an object.
func called(u map[string]any) string {
	meta, _ := u["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	if namespace, _ := meta["namespace"].(string); namespace != "" {
		return namespace + "/" + name
	}
	return name
}

func shortened(text string) string {
	if len(text) > maxMessage {
		return strings.ToValidUTF8(text[:maxMessage], "") + "..."
	}
	return text
}
