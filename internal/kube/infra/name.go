package infra

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// hashLength is the number of hexadecimal digits that distinguish names which are cut or changed.
const hashLength = 10

// Name is the name of a Gateway's objects: "<gateway>-<class>" (GEP-1762). If it cannot be a Service's name, because it
// is longer than 63 characters, has dots or begins with a digit, it is cut and ends in a hash of the whole.
func Name(gateway, class string) string {
	return serviceName(gateway + "-" + class)
}

// AddressName is the name of the Service for one of spec.addresses.
func AddressName(gateway, class string, address netip.Addr) string {
	text := strings.NewReplacer(".", "-", ":", "-").Replace(address.StringExpanded())
	return serviceName(gateway + "-" + class + "-" + text)
}

func serviceName(name string) string {
	if len(validation.IsDNS1035Label(name)) == 0 {
		return name
	}
	plain := strings.ReplaceAll(name, ".", "-")
	if plain[0] >= '0' && plain[0] <= '9' {
		plain = "gateway-" + plain
	}
	return cut(plain, validation.DNS1035LabelMaxLength, name)
}

// labelValue is a name as the value of a label, which may have 63 characters.
func labelValue(name string) string {
	if len(name) <= validation.LabelValueMaxLength {
		return name
	}
	return cut(name, validation.LabelValueMaxLength, name)
}

// cut shortens text so that it has at most the length given and ends in a hash of whole.
func cut(text string, length int, whole string) string {
	sum := sha256.Sum256([]byte(whole))
	if most := length - hashLength - 1; len(text) > most {
		text = text[:most]
	}
	return strings.TrimRight(text, "-.") + "-" + hex.EncodeToString(sum[:])[:hashLength]
}
