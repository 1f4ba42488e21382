package journal

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"

	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/safeio/canonical"
)

// ErrTaken says that the journal has another record under this Seq: another engine is running.
var ErrTaken = errors.New("another process wrote to this journal")

// admit returns those records that are new, after the last one of n. It skips records that are the last ones already;
// it is an error if another record has their Seq, or if records are missing in between.
func admit(records []engine.Record, n int, last engine.Record) ([]engine.Record, error) {
	first := records[0].Seq
	known := n - first + 1 // how many of them would be there already
	switch {
	case records[0].Epoch < last.Epoch && known < len(records):
	case known == 0:
		return records, nil
	case known < 0:
		return nil, engine.WithHint(fmt.Errorf("record %d cannot follow record %d", first, n),
			"records are missing: take the other copy of the journal")
	case known <= len(records) && same(records[known-1], last):
		return records[known:], nil
	}
	return nil, engine.WithHint(fmt.Errorf("record %d: %w", first, ErrTaken),
		"`theseus status` shows how far it is; let only one process continue")
}

// same compares by meaning: a copy that went through the API server has its keys in another order.
func same(a, b engine.Record) bool {
	if reflect.DeepEqual(a, b) { // nearly all are, and this takes a small part of the time
		return true
	}
	left, errLeft := canonical.JSON(a)
	right, errRight := canonical.JSON(b)
	return errLeft == nil && errRight == nil && bytes.Equal(left, right)
}
