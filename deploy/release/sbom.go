package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
)

// sbom lists the modules that the binary was built from, and the Go release, whose standard library is a part of it.
func sbom(path string) ([]byte, error) {
	b, err := readBuild(path)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(data)
	subject := component(b.Main.Path, b.Main.Version)
	subject.Type = cdx.ComponentTypeApplication
	subject.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(digest[:])}}
	properties := []cdx.Property{{Name: "go:platform", Value: b.os + "/" + b.arch}}
	if b.revision != "" {
		properties = append(properties, cdx.Property{Name: "go:vcs.revision", Value: b.revision})
	}
	subject.Properties = &properties

	components := []cdx.Component{component("std", strings.TrimPrefix(b.GoVersion, "go"))}
	for _, m := range b.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c := component(m.Path, m.Version)
		if m.Sum != "" {
			c.Properties = &[]cdx.Property{{Name: "go:sum", Value: m.Sum}}
		}
		components = append(components, c)
	}
	used := make([]string, len(components))
	for i, c := range components {
		used[i] = c.BOMRef
	}
	bom := cdx.NewBOM()
	bom.SerialNumber = uuid.NewSHA1(uuid.NameSpaceURL, digest[:]).URN()
	bom.Metadata = &cdx.Metadata{Component: &subject}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: subject.BOMRef, Dependencies: &used}}
	var out bytes.Buffer
	err = cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6)
	return out.Bytes(), err
}

// component is a module; see the purl specification for the form of its URL.
func component(path, version string) cdx.Component {
	url := "pkg:golang/" + path
	if version != "" {
		url += "@" + strings.ReplaceAll(version, "+", "%2B")
	}
	return cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: url}
}
