package resource

import (
	"fmt"
	"strings"
)

// Refused is the finding that an API server does not let a kind be read, named as "httproutes.gateway.networking.k8s.io".
func Refused(resource string, verbs []string, err error) Finding {
	plural, group, _ := strings.Cut(resource, ".")
	f := finding(CodeRefused, "", fmt.Sprintf("%s cannot be read, so they are not served: %v", resource, err))
	f.Fix = fmt.Sprintf("grant the verbs %s on the resource %s of the API group %q", strings.Join(verbs, ", "), plural, group)
	return f
}

// Unread is the finding that a Secret or ConfigMap that something refers to could not be read.
func Unread(k Key, err error) Finding {
	f := finding(CodeUnread, "", fmt.Sprintf("cannot be read, so its last version counts, or it is missing: %v", err))
	f.Ref = k.Ref()
	f.Fix = fmt.Sprintf("grant the verb get on %ss in the namespace %s, if the API server refuses it", strings.ToLower(k.Kind), k.Namespace)
	return f
}
