package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/theseus-cni/theseus/internal/change/plan"
)

// MarkText is the data of a record Marked.
type MarkText struct {
	Text string `json:"text"`
}

// MarkOf is the text of a record Marked; "" for other records.
func MarkOf(r Record) string {
	var mark MarkText
	if r.Event != Marked || json.Unmarshal(r.Data, &mark) != nil {
		return ""
	}
	return mark.Text
}

// Mark writes a line of a person's into the journal of a run that goes on or stands still. It uses the journal, the
// clock, the epoch and the name of deps. Its direction and its state stay as they are.
func Mark(ctx context.Context, p *plan.Plan, deps Deps, text string) error {
	deps.Options = deps.Options.withDefaults()
	m := &machine{plan: p, deps: deps, state: State{Phase: PhaseNew}}
	if err := m.open(ctx); err != nil {
		return err
	}
	if m.state.Phase == PhaseNew || m.state.Over() {
		return fmt.Errorf("the journal of %s takes no marks: %s", p.Name, m.state.Phase)
	}
	data, err := json.Marshal(MarkText{text})
	if err != nil {
		return err
	}
	err = m.append(ctx, Record{Event: Marked, Data: data, By: deps.By})
	if errors.Is(err, errInterrupted) {
		return context.Cause(ctx)
	}
	return err
}
