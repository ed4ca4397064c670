package convert

// maxAnnotations is how many bytes the names and values of all annotations of an object may have
// (k8s.io/apimachinery/pkg/api/validation, TotalAnnotationSizeLimitB): an API server takes no conversion that exceeds it.
const maxAnnotations = 256 << 10

// TooLarge is the value of an annotation whose real one does not fit.
const TooLarge = "too large"

// Keep puts text into an annotation, so that a version without a field for it loses nothing. If there is no space for
// it, the annotation is TooLarge, and without space for that it is left out: an API server must always be able to list
// the object.
func Keep(u map[string]any, name, text string) {
	meta, ok := u["metadata"].(map[string]any)
	if !ok {
		meta = map[string]any{}
		u["metadata"] = meta
	}
	all, ok := meta["annotations"].(map[string]any)
	if !ok {
		all = map[string]any{}
	}
	delete(all, name)
	left := maxAnnotations - len(name)
	for k, v := range all {
		value, _ := v.(string)
		left -= len(k) + len(value)
	}
	if len(text) > left {
		text = TooLarge
	}
	if len(text) <= left {
		all[name] = text
		meta["annotations"] = all
	}
}

// Take removes an annotation and returns its value.
func Take(u map[string]any, name string) (text string, ok bool) {
	meta, _ := u["metadata"].(map[string]any)
	all, _ := meta["annotations"].(map[string]any)
	if _, there := all[name]; !there {
		return "", false
	}
	text, ok = all[name].(string)
	if delete(all, name); len(all) == 0 {
		delete(meta, "annotations")
	}
	return text, ok
}
