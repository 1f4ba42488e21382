package probe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/proof/path"
)

// Parse reads measurements: a Document, a ProbeReport from the cluster, or a List of those.
func Parse(data []byte) ([]Document, error) {
	var list struct {
		Kind  string     `json:"kind"`
		Items []Document `json:"items"`
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, errors.New("not a measurement: the file is empty")
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, errors.New("not a measurement: the file is not valid JSON")
	}
	if list.Kind == "List" || list.Kind == "ProbeReportList" {
		return list.Items, unpack(list.Items)
	}
	if list.Kind != "ProbeReport" {
		return nil, fmt.Errorf("not a measurement: its kind is %q, not ProbeReport", list.Kind)
	}
	var document Document
	if err := json.Unmarshal(data, &document); err != nil {
		return nil, fmt.Errorf("not a measurement: %w", err)
	}
	documents := []Document{document}
	return documents, unpack(documents)
}

// unpack restores the results that agents have packed.
func unpack(documents []Document) error {
	for i := range documents {
		if err := loss.Unpack(&documents[i].Status); err != nil {
			return fmt.Errorf("the report of %s: %w", documents[i].Metadata.Name, err)
		}
	}
	return nil
}

// Summary adds up measurements: probes sent, lost and leaked, and the longest gap in ms.
type Summary struct {
	Paths              int
	Sent, Lost, Leaked int64
	LongestGapMillis   float64
	// Unanswered are the paths that should answer, but never did.
	Unanswered []string
}

// Summarise adds up measurements.
func Summarise(documents []Document) Summary {
	var sum Summary
	var all loss.Sum
	for _, document := range documents {
		for _, path := range account(document) {
			sum.Paths++
			if !path.Denied && path.Answered == 0 {
				sum.Unanswered = append(sum.Unanswered, path.ID)
			}
			all.Add(path)
		}
	}
	sum.Sent, sum.Lost, sum.Leaked = all.Sent, all.Lost, all.Leaked
	sum.LongestGapMillis = max(all.LongestMillis, all.LongestLeakMillis)
	return sum
}

// account counts a document, in the order of its results. A ProbeReport from the cluster describes no paths; the id of
// a denied path shows that it is denied.
func account(document Document) loss.Account {
	known := map[string]v1alpha1.Path{}
	for _, path := range document.Spec.Paths {
		known[path.ID] = path
	}
	var paths []v1alpha1.Path
	for _, result := range document.Status.Paths {
		described, ok := known[result.ID]
		if !ok {
			described = v1alpha1.Path{ID: result.ID, Denied: path.Denies(result.ID)}
		}
		paths = append(paths, described)
	}
	report := v1alpha1.ProbeReport{ObjectMeta: document.Metadata, Status: document.Status}
	return loss.NewAccount(paths, nil, []v1alpha1.ProbeReport{report}, 0)
}

// WriteTable writes one line per path, and the totals.
func WriteTable(w io.Writer, documents []Document) error {
	if len(documents) == 0 {
		return errors.New("no measurement to show")
	}
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "PATH\tSENT\tLOST\tGAPS\tLONGEST\tP50\tP99\tMAX\tSTALLS\t")
	for _, document := range documents {
		for i, path := range account(document) {
			writeRow(table, document.Status.Paths[i], path)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	sum := Summarise(documents)
	_, err := fmt.Fprintf(w, "\n%s, %s, %d lost, %d leaked, longest gap %s\n", cluster.Count(sum.Paths, "path"),
		cluster.Count(int(sum.Sent), "probe"), sum.Lost, sum.Leaked, millis(sum.LongestGapMillis))
	return err
}

func writeRow(w io.Writer, result v1alpha1.PathResult, path *loss.PathAccount) {
	wrong := fmt.Sprint(path.Lost)
	if path.Denied {
		wrong = fmt.Sprintf("%d leaked", path.Leaked)
	}
	gaps := int64(len(result.Gaps)) + result.Dropped
	open := ""
	if result.Open != nil {
		gaps++
		open = "+" // it had not ended
	}
	micros := func(i int) string {
		if result.Answered == 0 {
			return "-"
		}
		return millis(float64(result.RTTMicros[i]) / 1000)
	}
	fmt.Fprintf(w, "%s\t%d\t%s\t%d%s\t%s\t%s\t%s\t%s\t%d\t\n", result.ID, result.Sent, wrong, gaps, open,
		millis(longest(result)), micros(0), micros(1), micros(2), len(result.Stalls))
}

func longest(result v1alpha1.PathResult) float64 {
	length := 0.0
	for _, gap := range result.Gaps {
		length = max(length, gap.Millis)
	}
	if result.Open != nil {
		length = max(length, result.Open.Millis)
	}
	return length
}

// millis writes milliseconds with the significant digits.
func millis(value float64) string {
	switch {
	case value == 0:
		return "0"
	case value < 10:
		return fmt.Sprintf("%.2fms", value)
	case value < 10000:
		return fmt.Sprintf("%.0fms", value)
	}
	return fmt.Sprintf("%.1fs", value/1000)
}
