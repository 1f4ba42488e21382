package run

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/theseus-cni/theseus/internal/cluster/document"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/safeio/outfile"
)

// The folder of a run has the probes' results in two files. Each has one writer, so no process replaces what another
// one has kept: EvidenceFile is written by the process that carries out the run, and WatchedFile by a process that
// watches it (Watcher).
const (
	EvidenceFile = "evidence.json"
	WatchedFile  = "evidence.watched.json"

	// unreadMark is in the names of files that could not be read.
	unreadMark = ".unread"
)

// save keeps evidence on this machine, and reports whether it is kept.
func (r *Run) save(collected kube.Collected) bool {
	return save(filepath.Join(r.Dir, EvidenceFile), collected, r.View.Say, &r.unkept)
}

// save writes evidence to a file, and reports whether it did. It says once why it could not; said is what it said last.
func save(name string, collected kube.Collected, say func(string), said *string) bool {
	why := ""
	if err := write(name, collected, document.MaxInput); err != nil {
		why = err.Error()
	}
	if why != *said && why != "" {
		say("warning: the evidence for the report cannot be kept on this machine: " + why)
	}
	*said = why
	return why == ""
}

// Keep writes evidence to the folder of a run.
func Keep(dir string, collected kube.Collected) error {
	return write(filepath.Join(dir, EvidenceFile), collected, document.MaxInput)
}

// write replaces a file with evidence. If that has more than so many bytes, the file stays as it was: it could not be
// read again.
func write(name string, collected kube.Collected, most int) error {
	return outfile.WriteBy(name, func(to io.Writer) error { return encode(&bounded{to, most}, collected) })
}

// encode writes evidence as JSON, path by path: the whole text need not fit into memory.
func encode(to io.Writer, document kube.Collected) error {
	out := bufio.NewWriterSize(to, 1<<16)
	short := document
	short.Paths, short.Results = nil, nil
	rest, err := json.Marshal(short)
	if err != nil {
		return err
	}
	rest, lists := bytes.CutPrefix(rest, []byte(`{"paths":null,"results":null`))
	if !lists {
		return fmt.Errorf("evidence begins with %.40q", rest)
	}
	out.WriteString(`{"paths":`) //nolint:errcheck // Flush returns it
	if err := encodeList(out, document.Paths); err != nil {
		return err
	}
	out.WriteString(`,"results":`) //nolint:errcheck // Flush returns it
	if err := encodeList(out, document.Results); err != nil {
		return err
	}
	out.Write(rest) //nolint:errcheck // Flush returns it
	return out.Flush()
}

// encodeList writes a list as json.Marshal does.
func encodeList[T any](out *bufio.Writer, list []T) error {
	if list == nil {
		_, err := out.WriteString("null")
		return err
	}
	for i := range list {
		text, err := json.Marshal(&list[i])
		if err != nil {
			return err
		}
		out.WriteByte("[,"[min(i, 1)]) //nolint:errcheck // the writer keeps the first error
		if _, err := out.Write(text); err != nil {
			return err
		}
	}
	_, err := out.WriteString("[]"[min(len(list), 1):])
	return err
}

// evidence continues with what earlier processes kept on this machine.
func (r *Run) evidence() *kube.Evidence {
	evidence := kube.NewEvidence(takeOver(filepath.Join(r.Dir, EvidenceFile), r.View.Say))
	watched, err := read(filepath.Join(r.Dir, WatchedFile))
	if err != nil {
		r.View.Say("warning: the evidence that `theseus watch` kept cannot be read: " + err.Error())
	}
	evidence.Merge(watched)
	return evidence
}

// takeOver is the evidence in a file that this process writes from now on. It removes what is left of writes that were
// killed. A file that cannot be read gets another name, and is not replaced.
func takeOver(name string, say func(string)) kube.Collected {
	if err := outfile.Sweep(name); err != nil {
		say("warning: unfinished evidence cannot be removed: " + err.Error())
	}
	before, err := read(name)
	if err == nil {
		return before
	}
	aside, unmoved := setAside(name)
	if unmoved != nil {
		say("warning: earlier evidence cannot be read, and is replaced: " + errors.Join(err, unmoved).Error())
	} else {
		say("warning: earlier evidence cannot be read: " + err.Error() + "; it is now " + aside)
	}
	return before
}

// setAside gives a file a name that is not in use.
func setAside(name string) (string, error) {
	to := name + unreadMark
	for n := 2; ; n++ {
		if _, err := os.Lstat(to); err != nil {
			return to, os.Rename(name, to)
		}
		to = fmt.Sprintf("%s%s.%d", name, unreadMark, n)
	}
}

// unreadIn are the files in the folder of a run that could not be read when a process took them over.
func unreadIn(dir string) (files []string) {
	entries, _ := os.ReadDir(dir) // there is no folder where nothing was kept
	for _, entry := range entries {
		if name := entry.Name(); strings.HasPrefix(name, EvidenceFile+unreadMark) ||
			strings.HasPrefix(name, WatchedFile+unreadMark) {
			files = append(files, filepath.Join(dir, name))
		}
	}
	return files
}

// kept is the evidence in the folder of a run; empty if there is none.
func kept(dir string) (kube.Collected, error) {
	before, err := read(filepath.Join(dir, EvidenceFile))
	if err != nil {
		return before, err
	}
	watched, err := read(filepath.Join(dir, WatchedFile))
	if err != nil || len(watched.Paths) == 0 {
		return before, err
	}
	all := kube.NewEvidence(before)
	all.Merge(watched)
	return all.Document(), nil
}

// read reads the evidence in a file; it is empty if there is no file.
func read(name string) (kube.Collected, error) {
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return kube.Collected{}, nil
	}
	if err != nil {
		return kube.Collected{}, err
	}
	defer file.Close()
	collected, err := decode(file, document.MaxInput)
	if err != nil {
		err = &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return collected, err
}
