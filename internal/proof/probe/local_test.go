package probe

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

func TestParseTarget(t *testing.T) {
	for _, test := range []struct {
		target  string
		want    v1alpha1.Path
		problem string
	}{
		{target: "udp://192.0.2.7:7001", want: v1alpha1.Path{Protocol: v1alpha1.UDP, Size: 64, IntervalMillis: 20,
			Target: v1alpha1.Endpoint{Address: "192.0.2.7:7001"}}},
		{target: "tcp-new://[::1]:80?interval=1s&denied=true&size=100", want: v1alpha1.Path{Protocol: v1alpha1.TCPNew,
			Size: 100, IntervalMillis: 1000, Denied: true, Target: v1alpha1.Endpoint{Address: "[::1]:80"}}},
		{target: "dns://192.0.2.1/example.org", want: v1alpha1.Path{Protocol: v1alpha1.DNS, Size: 64,
			IntervalMillis: 20, Query: "example.org", Target: v1alpha1.Endpoint{Address: "192.0.2.1:53"}}},
		{target: "192.0.2.7:7001", problem: "192.0.2.7"},
		{target: "udp://192.0.2.7", problem: "host and port are needed"},
		{target: "dns://192.0.2.1", problem: "server and name are needed"},
		{target: "icmp://192.0.2.1", problem: "the protocol must be udp, tcp, tcp-new or dns"},
		{target: "udp://a:1?size=1", problem: "size 1 is not between"},
		{target: "udp://a:1?size=x", problem: "invalid syntax"},
		{target: "udp://a:1?interval=1us", problem: "below 1ms"},
		{target: "udp://a:1?colour=red", problem: `unknown option "colour"`},
	} {
		got, err := ParseTarget(test.target, 20*time.Millisecond)
		if test.problem != "" {
			if err == nil || !strings.Contains(err.Error(), test.problem) {
				t.Errorf("%s: error %v, want ...%s", test.target, err, test.problem)
			}
			continue
		}
		test.want.ID, test.want.Class, test.want.Source.Network = test.target, "outside", "host"
		if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", test.target, err, diff)
		}
	}
}

// TestRunLocal measures, writes the document, reads it back, and shows it.
func TestRunLocal(t *testing.T) {
	t.Parallel()
	udp, _ := echoServer(t)
	shut := pathTo("shut", v1alpha1.UDP, closedPort(t))
	shut.Denied = true
	local := Local{Paths: []v1alpha1.Path{pathTo("open", v1alpha1.UDP, udp), shut},
		For: 300 * time.Millisecond, Name: "here"}
	document, err := RunLocal(t.Context(), local)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	documents, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	sum := Summarise(documents)
	if sum.Paths != 2 || sum.Sent == 0 || sum.Lost != 0 || sum.Leaked != 0 || len(sum.Unanswered) != 0 {
		t.Errorf("%+v of %s", sum, data)
	}
	var table bytes.Buffer
	if err := WriteTable(&table, documents); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"PATH", "open", "shut", "0 leaked", "2 paths"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, &table)
		}
	}
	if _, err := RunLocal(t.Context(), Local{}); err == nil {
		t.Error("measures nothing without an error")
	}
}

func TestTable(t *testing.T) {
	from := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	documents := []Document{{
		Spec: DocumentSpec{Paths: []v1alpha1.Path{{ID: "a>c/denied", Denied: true}}},
		Status: v1alpha1.ProbeReportStatus{Paths: []v1alpha1.PathResult{
			{ID: "a>b", Sent: 1000, Answered: 987, RTTMicros: [3]int64{110, 2500, 31000},
				Gaps: []v1alpha1.Gap{{From: from, Millis: 120, Probes: 12}},
				Open: &v1alpha1.Gap{From: from, Probes: 1}},
			{ID: "a>c/denied", Sent: 500, Answered: 2, Dropped: 1},
			{ID: "a>d", Sent: 10},
		}},
	}}
	var got bytes.Buffer
	if err := WriteTable(&got, documents); err != nil {
		t.Fatal(err)
	}
	want := `PATH        SENT  LOST      GAPS  LONGEST  P50     P99     MAX   STALLS  
a>b         1000  13        2+    120ms    0.11ms  2.50ms  31ms  0       
a>c/denied  500   2 leaked  1     0        0       0       0     0       
a>d         10    10        0     0        -       -       -     0       

3 paths, 1510 probes, 23 lost, 2 leaked, longest gap 120ms
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if sum := Summarise(documents); !cmp.Equal(sum.Unanswered, []string{"a>d"}) {
		t.Errorf("unanswered %q", sum.Unanswered)
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]int{
		`{"kind":"ProbeReport","metadata":{"name":"a"},"status":{"paths":[{"id":"x"}]}}`: 1,
		`{"kind":"List","items":[{"kind":"ProbeReport"},{"kind":"ProbeReport"}]}`:        2,
		`{"kind":"Pod"}`: -1, `{`: -1, ``: -1,
	} {
		documents, err := Parse([]byte(text))
		if want < 0 && err == nil || want >= 0 && (err != nil || len(documents) != want) {
			t.Errorf("%s: %d documents, %v", text, len(documents), err)
		}
	}
}
