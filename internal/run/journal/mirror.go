package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/theseus-cni/theseus/internal/run/engine"
)

// Mirrored is a journal with a copy in a file. A record counts when the primary has it, and is written to the file only
// then. So a file with records that the primary lacks shows that the primary lost them, or was rewritten: that is an
// error (ContradictError). A fault of the file itself is a warning, and is repaired as soon as the file can be written
// again.
type Mirrored struct {
	primary engine.Journal
	path    string
	plan    string // hash
	warn    func(error)
	file    *File
	pending []engine.Record // those that the file lacks, once it is open
	warned  bool
}

// NewMirrored mirrors the journal of a plan, by its hash, into the file at path, which the first Records opens and
// repairs. warn gets a fault of the file, once until the file works again; it may be nil.
func NewMirrored(primary engine.Journal, path, plan string, warn func(error)) *Mirrored {
	if warn == nil {
		warn = func(error) {}
	}
	return &Mirrored{primary: primary, path: path, plan: plan, warn: warn}
}

// Append implements engine.Journal.
func (m *Mirrored) Append(ctx context.Context, records ...engine.Record) error {
	if err := m.primary.Append(ctx, records...); err != nil {
		return err
	}
	if m.file == nil {
		return m.tell(m.open(ctx))
	}
	m.pending = append(m.pending, records...)
	return m.tell(m.flush(ctx))
}

// Records implements engine.Journal: it returns the primary's records, and adds missing ones to the file.
func (m *Mirrored) Records(ctx context.Context) ([]engine.Record, error) {
	records, err := m.primary.Records(ctx)
	if err != nil {
		return nil, err
	}
	return records, m.tell(m.repair(ctx, records))
}

// Close closes the file.
func (m *Mirrored) Close() error {
	if m.file == nil {
		return nil
	}
	return m.file.Close()
}

// tell warns of a fault of the file, once. A contradiction between the two copies is not such a fault, and is returned.
func (m *Mirrored) tell(err error) error {
	if errors.Is(err, engine.ErrNeedsPerson) {
		return err
	}
	if err != nil && !m.warned {
		m.warn(fmt.Errorf("the local copy of the journal lacks records (the cluster has all of them): %w", err))
	}
	m.warned = err != nil
	return nil
}

// flush writes the records that the file lacks.
func (m *Mirrored) flush(ctx context.Context) error {
	for len(m.pending) > 0 && m.pending[0].Seq <= len(m.file.records) {
		m.pending = m.pending[1:]
	}
	if len(m.pending) == 0 {
		return nil
	}
	if err := m.file.Append(ctx, m.pending...); err != nil {
		return err
	}
	m.pending = nil
	return nil
}

// open retries to open a file that could not be opened before.
func (m *Mirrored) open(ctx context.Context) error {
	file, err := OpenFile(m.path)
	if err != nil && !errors.Is(err, errDamaged) {
		return err
	}
	if err == nil {
		m.file = file
	}
	records, err := m.primary.Records(ctx)
	if err != nil {
		return err
	}
	return m.repair(ctx, records)
}

// repair adds the missing records to the file. A file that is damaged, or is the journal of another plan, is moved
// aside, never overwritten.
func (m *Mirrored) repair(ctx context.Context, records []engine.Record) error {
	var err error
	var equal []bool
	if m.file == nil {
		if m.file, err = openKnown(m.path, records); err == nil {
			equal = m.file.equal
		}
	}
	if err == nil && otherPlan(m.file.records, m.plan) {
		err = fmt.Errorf("journal %s: %w: it belongs to another plan", m.path, errDamaged)
	}
	if err == nil {
		err = contradict(m.path, m.file.records, records, equal)
	}
	if errors.Is(err, errDamaged) {
		err = m.restart(err)
	}
	if err != nil {
		return err
	}
	m.pending = records[len(m.file.records):]
	return m.flush(ctx)
}

// restart moves an unusable file aside, and begins a new one.
func (m *Mirrored) restart(why error) error {
	if m.file != nil {
		m.file.Close()
		m.file = nil
	}
	aside := ""
	for i := 1; aside == ""; i++ {
		name := fmt.Sprintf("%s.other-%d", m.path, i)
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			aside = name
		} else if err != nil {
			return fileError(m.path, err)
		}
	}
	if err := os.Rename(m.path, aside); err != nil {
		return fileError(m.path, err)
	}
	m.warn(fmt.Errorf("%w; it is kept as %s", why, aside))
	var err error
	m.file, err = OpenFile(m.path)
	return err
}
