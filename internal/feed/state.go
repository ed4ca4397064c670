package feed

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/weirmesh/weir/internal/model"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// stateMagic begins a state file; the number is the version of its format. The SHA-256 of the rest follows, then a
// DeltaDiscoveryResponse that holds all parts, with the owner as the control plane's identifier.
const stateMagic = "weir state 1\n"

// encodeState returns the content of a state file: of each part the last readable version.
func encodeState(owner model.Owner, parts []*received) ([]byte, error) {
	r := &discovery.DeltaDiscoveryResponse{TypeUrl: typeURL, ControlPlane: &core.ControlPlane{Identifier: string(owner)}}
	for _, p := range parts {
		if p.err != nil {
			if p = p.good; p == nil {
				continue // it is sent anew
			}
		}
		r.Resources = append(r.Resources, &discovery.Resource{Name: p.name, Resource: &anypb.Any{TypeUrl: typeURL, Value: p.data}})
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

// decodeState reads the content of a state file written for that owner.
func decodeState(data []byte, owner model.Owner, limit int) (*assembly, error) {
	rest, ok := bytes.CutPrefix(data, []byte(stateMagic))
	if !ok {
		return nil, errors.New("is not a state file that this version understands")
	}
	if len(rest) < sha256.Size {
		return nil, errors.New("is truncated")
	}
	if sum := sha256.Sum256(rest[sha256.Size:]); !bytes.Equal(sum[:], rest[:sha256.Size]) {
		return nil, errors.New("is damaged: wrong checksum")
	}
	var r discovery.DeltaDiscoveryResponse
	if err := proto.Unmarshal(rest[sha256.Size:], &r); err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	if of := r.GetControlPlane().GetIdentifier(); of != string(owner) {
		return nil, fmt.Errorf("belongs to %q", printable(of, maxError))
	}
	a := &assembly{}
	if err := a.update(&r, limit); err != nil {
		return nil, err
	}
	return a, nil
}

// writeState replaces the file at once, so that a reader sees the old state or the new one. It also replaces the
// temporary file of a process that was killed, which uses the same memory.
func writeState(path string, data []byte) (err error) {
	next := path + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if _, err = f.Write(data); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// readState reads a state file of at most that many bytes.
func readState(path string, limit int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err == nil && len(data) > limit {
		err = fmt.Errorf("%s: is larger than %d bytes", path, limit)
	}
	return data, err
}
