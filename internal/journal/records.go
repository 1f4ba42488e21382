package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/theseus-cni/theseus/internal/engine"
)

// ErrTaken says that another record stands where one was to be written: another engine is at work.
var ErrTaken = errors.New("another engine wrote to this journal")

// admit says whether a record is new after the last one of n. It is not when it is the last one again, and
// it is an error when its place is taken or far off.
func admit(r engine.Record, n int, last engine.Record) (bool, error) {
	switch {
	case r.Seq == n+1:
		return true, nil
	case r.Seq == n && n > 0 && same(r, last):
		return false, nil
	case r.Seq <= n:
		return false, engine.WithHint(fmt.Errorf("record %d: %w", r.Seq, ErrTaken),
			"`theseus status` shows how far it is; let only one operator go on")
	}
	return false, engine.WithHint(fmt.Errorf("record %d cannot follow record %d", r.Seq, n),
		"records are missing: take the other copy of the journal")
}

// same compares by meaning: a copy that went through the API server has its keys in another order.
func same(a, b engine.Record) bool {
	left, errLeft := canonical(a)
	right, errRight := canonical(b)
	return errLeft == nil && errRight == nil && bytes.Equal(left, right)
}

func canonical(r engine.Record) ([]byte, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	var free any
	if err := json.Unmarshal(data, &free); err != nil {
		return nil, err
	}
	return json.Marshal(free)
}
