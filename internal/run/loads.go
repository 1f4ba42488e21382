package run

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/theseus-cni/theseus/internal/proof/bench"
	"github.com/theseus-cni/theseus/internal/safeio/infile"
	"github.com/theseus-cni/theseus/internal/safeio/outfile"
)

// The files in the folder of a change's state with the results of the load before and after it.
const (
	LoadBefore = "load-before.json"
	LoadAfter  = "load-after.json"
)

// maxLoad bounds such a file.
const maxLoad = 16 << 20

// KeepLoad keeps the result of a load for the report, in LoadBefore or LoadAfter.
func KeepLoad(dir, file string, result *bench.Result) error {
	return outfile.WriteJSON(filepath.Join(dir, file), result)
}

// KeptLoad are the results that were kept; those that are missing are nil. One that cannot be read is an error, and the
// other is returned nevertheless.
func KeptLoad(dir string) (p bench.Pair, err error) {
	before, first := keptLoad(dir, LoadBefore)
	after, second := keptLoad(dir, LoadAfter)
	return bench.Pair{Before: before, After: after}, errors.Join(first, second)
}

func keptLoad(dir, file string) (*bench.Result, error) {
	data, err := infile.ReadUpTo(filepath.Join(dir, file), maxLoad)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return bench.Read(data)
}
