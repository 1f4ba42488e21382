package view

import (
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// TestLinesInOrder: no line has an earlier time than the one before, though a record is printed later than it was made.
func TestLinesInOrder(t *testing.T) {
	var out strings.Builder
	begun := time.Now().Add(-time.Hour)
	v := &Lines{Out: &out, Script: run.NewScript(&plan.Plan{}), Begun: begun}
	v.Note("the API server does not answer")
	v.Record(engine.Record{At: begun.Add(time.Minute), Event: engine.Acted, Action: "an act of before",
		Result: engine.ResultDone})
	first, second, _ := strings.Cut(out.String(), "\n")
	if !strings.HasPrefix(first, "60:00.") || !strings.HasPrefix(second, "60:00.") {
		t.Errorf("said\n%s", out.String())
	}
}
