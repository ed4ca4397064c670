package cli

import (
	"bufio"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/visible"
)

// documentation is where the codes are explained.
const documentation = "https://github.com/weirmesh/weir/blob/main/docs/codes.md"

// github prints the findings as workflow commands of GitHub Actions, which shows them beside the lines of a pull
// request, and then the summary. Documentation: "Workflow commands for GitHub Actions", "Setting an error message".
func (r checkReport) github(w io.Writer) error {
	level := map[resource.Severity]string{resource.Error: "error", resource.Warning: "warning", resource.Info: "notice"}
	b := bufio.NewWriter(w)
	for _, f := range r.Findings {
		var at []string
		if file := f.Origin.File; file != "" && file != stdin {
			at = append(at, "file="+escapeProperty(filepath.ToSlash(resource.Origin{File: file}.String())))
			if f.Origin.Line > 0 {
				at = append(at, fmt.Sprintf("line=%d", f.Origin.Line))
			}
		}
		at = append(at, "title="+escapeProperty(visible.Text(strings.TrimSpace(f.Code+" "+f.Ref.String()))))
		fmt.Fprintf(b, "::%s %s::%s\n", level[f.Severity], strings.Join(at, ","), escapeData(visible.Lines(sentence(f))))
	}
	b.WriteString(r.summary() + "\n")
	if line := r.aim.String(); line != "" {
		b.WriteString(visible.Text(line) + "\n")
	}
	return b.Flush()
}

// stdin is how the standard input is called among files.
const stdin = "-"

// sentence is a finding's message with its fix.
func sentence(f resource.Finding) string {
	if f.Fix == "" {
		return f.Message
	}
	return f.Message + "\nfix: " + f.Fix
}

var (
	dataEscapes     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	propertyEscapes = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

func escapeData(s string) string     { return dataEscapes.Replace(s) }
func escapeProperty(s string) string { return propertyEscapes.Replace(s) }

// The parts of SARIF 2.1.0 (OASIS, Static Analysis Results Interchange Format) that are written. Names are the format's.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool    sarifTool     `json:"tool"`
		Results []sarifResult `json:"results"`
		// Properties is a property bag (3.8).
		Properties aim `json:"properties,omitzero"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name           string      `json:"name"`
		Version        string      `json:"version,omitempty"`
		InformationURI string      `json:"informationUri"`
		Rules          []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID                   string       `json:"id"`
		ShortDescription     sarifMessage `json:"shortDescription"`
		FullDescription      sarifMessage `json:"fullDescription"`
		Help                 sarifMessage `json:"help"`
		HelpURI              string       `json:"helpUri"`
		DefaultConfiguration sarifLevel   `json:"defaultConfiguration"`
	}
	sarifLevel struct {
		Level string `json:"level"`
	}
	sarifMessage struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		RuleIndex int             `json:"ruleIndex"`
		Level     string          `json:"level"`
		Message   sarifMessage    `json:"message"`
		Locations []sarifLocation `json:"locations,omitempty"`
	}
	sarifLocation struct {
		Physical *sarifPhysical `json:"physicalLocation,omitempty"`
		Logical  []sarifLogical `json:"logicalLocations,omitempty"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   *sarifRegion  `json:"region,omitempty"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		StartLine int `json:"startLine"`
	}
	sarifLogical struct {
		FullyQualifiedName string `json:"fullyQualifiedName"`
		Kind               string `json:"kind"`
	}
)

// sarif is the report as a log of SARIF 2.1.0. Rules are the codes that were found, of those known.
func (r checkReport) sarif(known []resource.Code) sarifLog {
	level := map[resource.Severity]string{resource.Error: "error", resource.Warning: "warning", resource.Info: "note"}
	run := sarifRun{Tool: sarifTool{sarifDriver{Name: "weir", InformationURI: "https://github.com/weirmesh/weir", Rules: []sarifRule{}}}, Results: []sarifResult{}, Properties: r.aim}
	if info, ok := debug.ReadBuildInfo(); ok {
		run.Tool.Driver.Version = info.Main.Version
	}
	index := map[string]int{}
	for _, f := range r.Findings {
		at, ok := index[f.Code]
		if !ok {
			at = len(run.Tool.Driver.Rules)
			index[f.Code] = at
			rule := sarifRule{ID: f.Code, HelpURI: documentation + "#" + strings.ToLower(f.Code), DefaultConfiguration: sarifLevel{level[f.Severity]}}
			if i := slices.IndexFunc(known, func(c resource.Code) bool { return c.ID == f.Code }); i >= 0 {
				c := known[i]
				rule.ShortDescription, rule.FullDescription, rule.Help = sarifMessage{c.Title}, sarifMessage{c.Meaning}, sarifMessage{c.Fix}
				rule.DefaultConfiguration = sarifLevel{level[c.Severity]}
			}
			run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, rule)
		}
		result := sarifResult{RuleID: f.Code, RuleIndex: at, Level: level[f.Severity], Message: sarifMessage{sentence(f)}}
		var location sarifLocation
		if file := f.Origin.File; file != "" && file != stdin {
			location.Physical = &sarifPhysical{Artifact: sarifArtifact{(&url.URL{Path: filepath.ToSlash(file)}).String()}}
			if f.Origin.Line > 0 {
				location.Physical.Region = &sarifRegion{f.Origin.Line}
			}
		}
		if name := f.Ref.String(); f.Ref.Kind != "" {
			location.Logical = []sarifLogical{{name, "resource"}}
		}
		if location.Physical != nil || location.Logical != nil {
			result.Locations = []sarifLocation{location}
		}
		run.Results = append(run.Results, result)
	}
	return sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run}}
}
