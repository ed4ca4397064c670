package workload

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/statefile"
)

// kept is what a file has of an identity: its key, in PKCS #8, and the answer that came for it.
type kept struct {
	Key    []byte `json:"key"`
	Answer []byte `json:"answer"`
}

// keep writes an identity to the file, if there is to be one.
func (s *Source) keep(key *ecdsa.PrivateKey, answer []byte) error {
	if s.File == "" {
		return nil
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	text, err := json.Marshal(kept{private, answer})
	if err != nil {
		return err
	}
	return statefile.Write(s.File, text)
}

// restore reads the identity of the file, which is as good now as if it had just come. It fails with fs.ErrNotExist if there is
// none.
func (s *Source) restore() (*spiffe.Identity, Issued, error) {
	if s.File == "" {
		return nil, Issued{}, fs.ErrNotExist
	}
	text, err := statefile.Read(s.File, 2*maxAnswer) // the answer is in base64
	if err != nil {
		return nil, Issued{}, err
	}
	var k kept
	if err := json.Unmarshal(text, &k); err != nil {
		return nil, Issued{}, err
	}
	private, err := x509.ParsePKCS8PrivateKey(k.Key)
	if err != nil {
		return nil, Issued{}, fmt.Errorf("its key: %w", err)
	}
	key, ok := private.(*ecdsa.PrivateKey)
	if !ok {
		return nil, Issued{}, errors.New("its key is not one of ECDSA")
	}
	return identityOf(k.Answer, key, s.day())
}
