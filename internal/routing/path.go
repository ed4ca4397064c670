package routing

// NormalizePath returns the one form in which paths are compared.
func NormalizePath(raw string) (normal string, err error) { return raw, nil }
