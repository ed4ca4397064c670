package tlsconfig

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// clusterDomain is the domain of Kubernetes' own names. A cluster may have another one; names under that are then as names
// of elsewhere, which nobody has without a Grant.
const clusterDomain = "cluster.local"

// maxGrants and maxName bound an allow list, in number and bytes.
const (
	maxGrants = 1024
	maxName   = 253
)

// Grant allows a namespace names that are not those of its Services.
type Grant struct {
	Namespace string
	// Name is a DNS name, or "*." and the name under which all are allowed.
	Name string
}

var (
	nameForm      = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`)
	namespaceForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
)

// ParseGrants reads an allow list, each "NAMESPACE=NAME".
func ParseGrants(list []string) (all []Grant, err error) {
	if len(list) > maxGrants {
		return nil, fmt.Errorf("there are %d names; at most %d can be allowed", len(list), maxGrants)
	}
	for _, text := range list {
		namespace, name, ok := strings.Cut(text, "=")
		bare := strings.TrimPrefix(name, "*.")
		switch {
		case !ok || !namespaceForm.MatchString(namespace):
			return nil, fmt.Errorf("%.300q: write NAMESPACE=NAME, such as shop=shop.example.com or shop=*.shop.example.com", text)
		case len(bare) > maxName || !nameForm.MatchString(bare):
			return nil, fmt.Errorf("%.300q: the name must be a DNS name in lower case, or *. and one", text)
		case ofCluster(bare):
			return nil, fmt.Errorf("%.300q: names under svc and %s are those of Services, and go to the Service's own namespace alone", text, clusterDomain)
		}
		all = append(all, Grant{namespace, name})
	}
	return all, nil
}

// The flag that lists grants.
const (
	FlagName  = "mesh-subject-names"
	FlagUsage = "`namespace=name,...` of DNS names that TLSConfigs of a namespace may give its pods' certificates beside those of its Services; *.name allows all names under it"
)

// Flag is a flag that lists grants, by comma.
type Flag struct {
	list    *[]Grant
	written []string
}

// NewFlag returns a flag that adds to list.
func NewFlag(list *[]Grant) *Flag { return &Flag{list: list} }

// Type implements pflag.Value.
func (*Flag) Type() string { return "names" }

// String implements pflag.Value.
func (f *Flag) String() string { return strings.Join(f.written, ",") }

// Set implements pflag.Value.
func (f *Flag) Set(text string) (err error) {
	all := append(slices.Clone(f.written), strings.Split(text, ",")...)
	grants, err := ParseGrants(all)
	if err == nil {
		f.written, *f.list = all, grants
	}
	return err
}

// allows reports whether a grant has a name.
func (g Grant) allows(namespace, name string) bool {
	suffix, under := strings.CutPrefix(g.Name, "*")
	return g.Namespace == namespace && (g.Name == name || under && strings.HasSuffix(name, suffix) && len(name) > len(suffix))
}

// ofCluster reports whether a name is one of Kubernetes', or could be taken for one.
func ofCluster(name string) bool {
	for _, suffix := range []string{"svc", clusterDomain} {
		if name == suffix || strings.HasSuffix(name, "."+suffix) {
			return true
		}
	}
	return false
}

var (
	errCluster = errors.New("names under svc and " + clusterDomain + " are those of Services, and the namespace has no such Service")
	errAddress = errors.New("it would be read as an IP address")
	errAllowed = errors.New("it is no Service of the namespace, and --mesh-subject-names does not allow it")
)

// judge says why the pods of a namespace may not have a name; nil if they may. It is one of the ways to write the name of a
// Service of the namespace, or the namespace has a grant.
func judge(namespace, name string, services map[string]bool, grants []Grant) error {
	labels := strings.Split(name, ".")
	if strings.Trim(labels[len(labels)-1], "0123456789") == "" {
		return errAddress
	}
	rest := strings.Join(labels[1:], ".")
	if services[labels[0]] && slices.Contains([]string{"", namespace, namespace + ".svc", namespace + ".svc." + clusterDomain}, rest) {
		return nil
	}
	if ofCluster(name) {
		return errCluster
	}
	if slices.ContainsFunc(grants, func(g Grant) bool { return g.allows(namespace, name) }) {
		return nil
	}
	return errAllowed
}
