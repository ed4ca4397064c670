package feed

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/weirmesh/weir/internal/model"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// stateMagic begins a state file; the number is the version of its format. The SHA-256 of the rest follows, then a
// DeltaDiscoveryResponse that holds all parts, and the destinations that they are for, with the owner as the control plane's
// identifier.
const stateMagic = "weir state 1\n"

// encodeState returns the content of a state file: of each part the last readable version.
func encodeState(owner model.Owner, parts []*received, destinations ...netip.AddrPort) ([]byte, error) {
	r := &discovery.DeltaDiscoveryResponse{TypeUrl: typeURL, ControlPlane: &core.ControlPlane{Identifier: string(owner)}}
	for _, p := range parts {
		if p.err != nil {
			if p = p.good; p == nil {
				continue // it is sent anew
			}
		}
		r.Resources = append(r.Resources, &discovery.Resource{Name: p.name, Resource: &anypb.Any{TypeUrl: typeURL, Value: p.data}})
	}
	for _, to := range destinations {
		r.Resources = append(r.Resources, &discovery.Resource{Name: destinationName(to), Version: answerKnown, Resource: &anypb.Any{TypeUrl: destinationURL}})
	}
	head := len(stateMagic) + sha256.Size
	out := make([]byte, head, head+proto.Size(r))
	out, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(out, r)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(out[head:])
	copy(out[copy(out, stateMagic):], sum[:])
	return out, nil
}

// decodeState reads the content of a state file written for that owner: the parts, and the destinations that were known.
func decodeState(data []byte, owner model.Owner, limit int) (*assembly, []question, error) {
	rest, ok := bytes.CutPrefix(data, []byte(stateMagic))
	if !ok {
		return nil, nil, errors.New("is not a state file that this version understands")
	}
	if len(rest) < sha256.Size {
		return nil, nil, errors.New("is truncated")
	}
	if sum := sha256.Sum256(rest[sha256.Size:]); !bytes.Equal(sum[:], rest[:sha256.Size]) {
		return nil, nil, errors.New("is damaged: wrong checksum")
	}
	var r discovery.DeltaDiscoveryResponse
	if err := proto.Unmarshal(rest[sha256.Size:], &r); err != nil {
		return nil, nil, fmt.Errorf("cannot be read: %w", err)
	}
	if of := r.GetControlPlane().GetIdentifier(); of != string(owner) {
		return nil, nil, fmt.Errorf("belongs to %q", printable(of, maxError))
	}
	destinations := takeAnswers(&r)
	a := &assembly{}
	if err := a.update(&r, limit); err != nil {
		return nil, nil, err
	}
	return a, destinations, nil
}
