package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/network/bgp"
	"github.com/theseus-cni/theseus/internal/network/bgp/draw"
	"github.com/theseus-cni/theseus/internal/step"
)

// maxPage is how large a page may be, in bytes, so that it can be mailed and opened.
const maxPage = 3 << 20

func TestHTMLIsWellFormed(t *testing.T) {
	for name, s := range samples() {
		t.Run(name, func(t *testing.T) {
			data, err := HTML(Build(s.input()))
			if err != nil {
				t.Fatal(err)
			}
			keep(t, name, data)
			wellFormed(t, data)
			if len(data) > maxPage {
				t.Errorf("%d bytes are more than %d", len(data), maxPage)
			}
		})
	}
}

// keep writes the page to the folder in REPORT_SAMPLES, where it is set, for looking at it.
func keep(t *testing.T, name string, data []byte) {
	folder := os.Getenv("REPORT_SAMPLES")
	if folder == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(folder, name+".html"), data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// wellFormed demands that every element is closed, every link within the page leads somewhere, and nothing
// is loaded from elsewhere.
func wellFormed(t *testing.T, data []byte) {
	t.Helper()
	decoder := xml.NewDecoder(bytes.NewReader(data))
	decoder.Entity = xml.HTMLEntity
	ids, links := map[string]bool{}, map[string]bool{}
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		element, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		for _, attr := range element.Attr {
			switch attr.Name.Local {
			case "id":
				ids[attr.Value] = true
			case "href":
				links[attr.Value] = true
			case "src":
				t.Errorf("%s loads %s", element.Name.Local, attr.Value)
			}
		}
	}
	for link := range links {
		if !strings.HasPrefix(link, "#") || !ids[link[1:]] {
			t.Errorf("link %q leads out of the page or nowhere", link)
		}
	}
}

// Names come from clusters and may hold anything: none may become markup, script, style or a link.
func TestHTMLEscapes(t *testing.T) {
	const evil = `"'><script>alert(1)</script><img src=x onerror=alert(2)>&{{.}}</style>`
	in := samples()["gaps"].input()
	in.Plan.Name, in.Plan.Source.CNI, in.Plan.Strategy, in.Plan.Reason = evil, evil, evil, evil
	in.Plan.Findings[0].Accepted = evil
	in.Plan.Steps[0].Title, in.Plan.Steps[0].Why, in.Plan.Steps[0].ID = evil, evil, evil
	in.Plan.Steps[1].Actions[0].Title, in.Plan.Steps[2].Node = evil, evil
	in.Workloads[0] = WorkloadOutcome{Kind: evil, Namespace: evil, Name: evil, Pods: 1}
	in.Traffic[0].Name = evil
	in.InventoriesAfter[evil] = step.Inventory{Node: evil, Found: step.Residue{Links: []string{evil}}}
	for i := range in.Records {
		if in.Records[i].Verdict != nil {
			in.Records[i].Verdict.Reason, in.Records[i].Verdict.Bad = evil, []string{evil}
		}
		in.Records[i].By, in.Records[i].Error = evil, evil
	}
	in.Reports[0].Name = evil
	for i := range in.Paths {
		in.Paths[i].Class, in.Paths[i].Source.Network, in.Paths[i].Target.Node = evil, evil, evil
	}
	in.Reports[0].Status.Paths = append(in.Reports[0].Status.Paths,
		v1alpha1.PathResult{ID: evil, Sent: 1, Since: epoch, Last: epoch, Open: &v1alpha1.Gap{From: epoch}})
	data, err := HTML(Build(in))
	if err != nil {
		t.Fatal(err)
	}
	wellFormed(t, data)
	for _, bad := range []string{"<script>alert", "<img"} {
		if bytes.Contains(data, []byte(bad)) {
			t.Errorf("the page holds %q", bad)
		}
	}
	if n := bytes.Count(data, []byte("<script")); n != 1 {
		t.Errorf("%d scripts, want the page's own", n)
	}
}

// TestHTMLDrawsBGP: a change of a cluster whose routes BGP carries shows the graph before it and after.
func TestHTMLDrawsBGP(t *testing.T) {
	node := func(name, address, id string) bgp.Node {
		return bgp.Node{Name: name, Labels: map[string]string{}, IPv4: netip.MustParseAddr(address), ClusterID: id}
	}
	graph := func(id string) *bgp.Graph {
		return bgp.Build(&bgp.Input{Mesh: true,
			Nodes: []bgp.Node{node("n1", "10.0.0.1", id), node("n2", "10.0.0.2", "")}}, false)
	}
	m := Build(Input{BGP: []draw.Row{{Family: "IPv4", Before: graph(""), After: graph("1.2.3.4"),
		BeforeTitle: "before", AfterTitle: "now"}}})
	data, err := HTML(m)
	if err != nil {
		t.Fatal(err)
	}
	wellFormed(t, data)
	if strings.Count(string(data), "<h2>BGP</h2>") != 1 || strings.Count(string(data), ">n2<") < 2 {
		t.Errorf("no graph before and after:\n%s", data)
	}
}
