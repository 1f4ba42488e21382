package kube

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/document"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

// Stdin is the path that means standard input.
const Stdin = "-"

// ReadFiles makes a snapshot from files: a Theseus snapshot, or plain Kubernetes YAML or JSON. A path is a
// file, a folder (all .yaml, .yml and .json files below it, including links), or Stdin. The notes are for people, one
// line each. Invalid content, or files without any object, return a *document.Error, which has a hint.
func ReadFiles(version string, stdin io.Reader, paths ...string) (*cluster.Snapshot, []string, error) {
	if len(paths) == 0 {
		return nil, nil, errors.New("no file to read")
	}
	builder := document.New(version)
	for _, path := range paths {
		if err := readPath(builder, stdin, path); err != nil {
			return nil, nil, err
		}
	}
	snapshot, notes := builder.Snapshot()
	answered := func(s cluster.Source) bool { return s.Missing == "" }
	if len(snapshot.Nodes)+len(snapshot.Other) == 0 && !slices.ContainsFunc(snapshot.Sources, answered) {
		return nil, nil, &document.Error{File: strings.Join(paths, ", "),
			Err: errors.New("it contains no objects of a cluster"), Advice: "check whether the command that wrote it " +
				"failed, such as: kubectl get nodes,pods,... -A -o yaml"}
	}
	return snapshot, notes, nil
}

func readPath(builder *document.Builder, stdin io.Reader, path string) error {
	if path == Stdin {
		return builder.Add("stdin", stdin, false)
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return readFile(builder, path, false)
	}
	root, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	found := 0
	err = filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || !isDocument(file) {
			return err
		}
		if read, err := isFile(root, file, entry); err != nil || !read {
			return err
		}
		found++
		return readFile(builder, file, true)
	})
	if err == nil && found == 0 {
		return &document.Error{File: path, Err: errors.New("no .yaml, .yml or .json file in this folder"),
			Advice: "fill it with: kubectl get nodes,pods,... -A -o yaml > " +
				shell.Word(filepath.Join(path, "cluster.yaml"))}
	}
	return err
}

// isFile reports whether an entry of a folder is a file, or a link to a file outside of the folder.
func isFile(root, file string, entry fs.DirEntry) (bool, error) {
	if entry.Type()&fs.ModeSymlink == 0 {
		return entry.Type().IsRegular(), nil
	}
	target, err := filepath.EvalSymlinks(file)
	if err != nil {
		return false, err
	}
	info, err := os.Stat(target)
	if err != nil {
		return false, err
	}
	within, err := filepath.Rel(root, target)
	return info.Mode().IsRegular() && !(err == nil && filepath.IsLocal(within) && isDocument(target)), nil
}

func isDocument(file string) bool {
	switch strings.ToLower(filepath.Ext(file)) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

func readFile(builder *document.Builder, path string, lenient bool) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return builder.Add(path, file, lenient)
}

// ReadObjects reads manifests from a file: every object unchanged, in order.
func ReadObjects(path string) ([]unstructured.Unstructured, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return DecodeObjects(path, file)
}

// DecodeObjects is ReadObjects for a text with this name.
func DecodeObjects(name string, text io.Reader) ([]unstructured.Unstructured, error) {
	objects, err := document.Objects(name, text)
	if err == nil && len(objects) == 0 {
		err = &document.Error{File: name, Err: errors.New("no Kubernetes object in it")}
	}
	return objects, err
}

// WriteSnapshot writes a snapshot as JSON with one object per line. ReadFiles reads it back unchanged, and other tools
// can search it line by line.
func WriteSnapshot(output io.Writer, snapshot *cluster.Snapshot) error {
	raw, err := json.Marshal(snapshot)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	buffered := bufio.NewWriter(output)
	if err := breakLines(buffered, raw); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	if err := buffered.Flush(); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	return nil
}

// breakLines writes JSON with a line end after each top-level field and each element of its lists.
func breakLines(output *bufio.Writer, raw []byte) error {
	depth, quoted, escaped := 0, false, false
	for _, c := range raw {
		if err := output.WriteByte(c); err != nil {
			return err
		}
		switch {
		case escaped:
			escaped = false
		case quoted:
			escaped, quoted = c == '\\', c != '"'
		case c == '"':
			quoted = true
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		case c == ',' && depth <= 2:
			_ = output.WriteByte('\n') // the error is sticky: the next write returns it
		}
	}
	return output.WriteByte('\n')
}
