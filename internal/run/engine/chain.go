package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/theseus-cni/theseus/internal/safeio/canonical"
)

// ErrNeedsPerson marks errors after which no run may continue by itself: a journal or a plan is not what was approved
// and recorded.
var ErrNeedsPerson = errors.New("a person has to decide")

// ErrUnchained says that a journal has no hash chain. It can be read, but no run continues it.
var ErrUnchained = errors.New("the journal has no hash chain: an older version of theseus began this migration")

// NeedsPerson marks an error as ErrNeedsPerson, and gives it a hint.
func NeedsPerson(hint, format string, args ...any) error {
	return WithHint(&forPerson{fmt.Errorf(format, args...)}, hint)
}

type forPerson struct{ err error }

func (f *forPerson) Error() string        { return f.err.Error() }
func (f *forPerson) Unwrap() error        { return f.err }
func (f *forPerson) Is(target error) bool { return target == ErrNeedsPerson }

// Link is the chain of a record: the hash of the one before it, or of the plan for the first record, and of the record
// itself.
func Link(before string, r Record) (string, error) {
	var l linker
	return l.link(before, &r)
}

// linker computes the chains of many records in one buffer.
type linker struct{ text []byte }

// link is Link, which is canonical.Hash of both, without the record's own chain.
func (l *linker) link(before string, r *Record) (link string, err error) {
	if l.text, err = appendText(l.text[:0], before, canonical.Append); err != nil {
		return "", err
	}
	if l.text, err = r.appendForm(append(l.text, '\n')); err != nil {
		return "", err
	}
	l.text = append(l.text, '\n')
	sum := sha256.Sum256(l.text)
	return hex.EncodeToString(sum[:]), nil
}

// Broken is a record that does not follow from the one before it: it was edited, or earlier records were dropped or
// moved.
type Broken struct {
	Record Record
	Index  int // in the journal, from 0
	// Place is where the record was read: a page or a line. It may be empty.
	Place string
	Why   string
}

func (b *Broken) Error() string {
	where, what := "", string(b.Record.Event)
	if b.Place != "" {
		where = " (" + b.Place + ")"
	}
	if b.Record.Action != "" {
		what += ", action " + b.Record.Action
	} else if b.Record.Step != "" {
		what += ", step " + b.Record.Step
	}
	return fmt.Sprintf("the journal was changed after it was written: record %d%s: %s: %s",
		b.Record.Seq, where, what, b.Why)
}

// Hint says what a person can do.
func (b *Broken) Hint() string {
	return "do not continue with this journal: compare it with journal.jsonl on the machine that ran the migration, " +
		"and find out who wrote to it"
}

// Is makes it an ErrNeedsPerson.
func (b *Broken) Is(target error) bool { return target == ErrNeedsPerson }

// Chained verifies the chain of a whole journal and returns its head, the chain of the last record; "" for an empty
// journal. A caller that knows the plan compares its hash with the first record's (State.Matches).
func Chained(records []Record) (head string, err error) {
	var l linker
	for i := range records {
		r := &records[i]
		if i == 0 {
			var start Start
			if r.Event != Started || json.Unmarshal(r.Data, &start) != nil {
				return "", &Broken{Record: *r, Index: i, Why: "the first record does not name the plan"}
			}
			if r.Chain == "" {
				return "", WithHint(ErrUnchained, "finish it, or roll it back, with the version that began it")
			}
			head = start.Plan
		}
		link, err := l.link(head, r)
		if err != nil {
			return "", &Broken{Record: *r, Index: i, Why: err.Error()}
		}
		if r.Chain != link {
			return "", &Broken{Record: *r, Index: i, Why: "it does not follow from the record before it"}
		}
		head = link
	}
	return head, nil
}
