package document

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"

	"github.com/theseus-cni/theseus/internal/safeio/bounded"
)

// addYAML reads YAML documents. It splits the items of a List in block style, as kubectl prints it, by their
// indentation and decodes them one by one; it decodes everything else document by document.
func (b *Builder) addYAML(name string, in *lines) error {
	d := newYAMLDocument(b, name)
	for {
		line, err := in.next()
		if errors.Is(err, io.EOF) {
			return d.end()
		}
		if err != nil {
			return err
		}
		if err := d.line(line, in.number); err != nil {
			return err
		}
	}
}

// yamlDocument is the document being read.
type yamlDocument struct {
	builder *Builder
	file    string
	list    list
	// head is the text outside of the items.
	head     bytes.Buffer
	headLine int
	inItems  bool
	indent   int // of the dash before each item; -1 before the first
	item     bytes.Buffer
	itemLine int // where item starts; 0 while there is none
	// whole is set once an item has an anchor, to which any later item may refer: the rest is read as one text, in
	// head.
	whole bool
}

func newYAMLDocument(b *Builder, file string) *yamlDocument {
	return &yamlDocument{builder: b, file: file, indent: -1, list: list{builder: b, file: file}}
}

func (d *yamlDocument) line(line []byte, number int) error {
	if rest, ok := marker(line, "---"); ok {
		if err := d.end(); err != nil {
			return err
		}
		if len(rest) > 0 && rest[0] != '#' {
			return d.text(rest, number)
		}
		return nil
	}
	if _, ok := marker(line, "..."); ok {
		return d.end()
	}
	if !d.inItems && d.head.Len() == 0 && len(line) > 0 && line[0] == '%' {
		return nil // a directive
	}
	if d.inItems {
		return d.itemsLine(line, number)
	}
	if rest, ok := bytes.CutPrefix(line, []byte("items:")); ok && !d.whole && !bounded.Anchored(d.head.Bytes()) {
		if rest = bytes.TrimSpace(rest); len(rest) == 0 || rest[0] == '#' {
			d.inItems, d.list.items = true, true
			return nil
		}
	}
	return d.text(line, number)
}

// itemsLine handles one line below "items:".
func (d *yamlDocument) itemsLine(line []byte, number int) error {
	content := bytes.TrimLeft(line, " ")
	depth := len(line) - len(content)
	dash := len(content) > 0 && content[0] == '-' && (len(content) == 1 || content[1] == ' ' || content[1] == '\t')
	switch {
	case dash && (d.indent < 0 || depth == d.indent):
		if err := d.flush(); err != nil {
			return err
		}
		if d.whole {
			return d.text(line, number)
		}
		d.indent, d.itemLine = depth, number
		line = bytes.Replace(line, []byte("-"), []byte(" "), 1)
	case depth == 0 && len(content) > 0 && content[0] != '#':
		d.inItems = false
		if err := d.flush(); err != nil {
			return err
		}
		return d.text(line, number)
	case d.itemLine == 0 && len(content) > 0 && content[0] != '#':
		return place{file: d.file, line: number}.fail("", errors.New("items must be a list"))
	}
	return appendLine(&d.item, line, d.file, number)
}

// text handles a line outside of the items.
func (d *yamlDocument) text(line []byte, number int) error {
	if d.head.Len() == 0 {
		d.headLine = number
	}
	return appendLine(&d.head, line, d.file, number)
}

func appendLine(buffer *bytes.Buffer, line []byte, file string, number int) error {
	if buffer.Len()+len(line) > MaxObject {
		return place{file: file, line: number}.fail("", fmt.Errorf("one object is larger than %d MiB", MaxObject>>20))
	}
	buffer.Write(line)
	buffer.WriteByte('\n')
	return nil
}

// flush ends the current item.
func (d *yamlDocument) flush() error {
	defer func() { d.item.Reset(); d.itemLine = 0 }()
	if d.itemLine == 0 {
		return nil
	}
	at := place{file: d.file, line: d.itemLine}
	raw, fast := d.builder.fast(d.item.Bytes())
	if !fast && bounded.Anchored(d.item.Bytes()) {
		return d.join()
	}
	if !fast {
		var err error
		if raw, err = d.builder.slow(d.item.Bytes(), at); err != nil {
			return err
		}
	}
	return d.list.add(raw, at)
}

// join appends the current item to the head; the rest of the document follows there.
func (d *yamlDocument) join() error {
	d.item.Bytes()[d.indent] = '-'
	d.head.WriteString("items:\n")
	d.headLine = d.itemLine - bytes.Count(d.head.Bytes(), []byte("\n"))
	d.whole, d.inItems = true, false
	if d.head.Len()+d.item.Len() > MaxObject {
		return place{file: d.file, line: d.itemLine}.fail("",
			fmt.Errorf("one object is larger than %d MiB", MaxObject>>20))
	}
	d.head.Write(d.item.Bytes())
	return nil
}

// end ends the document.
func (d *yamlDocument) end() error {
	defer func() { *d = *newYAMLDocument(d.builder, d.file) }()
	if err := d.flush(); err != nil {
		return err
	}
	at := place{file: d.file, line: max(d.headLine, 1)}
	raw, err := d.builder.toJSON(d.head.Bytes(), at)
	if err != nil {
		return err
	}
	if d.whole {
		return d.list.rest(raw, at)
	}
	if d.list.items {
		return d.list.end(raw, at)
	}
	if string(raw) == "null" {
		return nil // an empty document
	}
	return d.builder.addObject(raw, at)
}

// marker reports whether a line is a document marker, and returns the rest of the line.
func marker(line []byte, mark string) (rest []byte, ok bool) {
	rest, ok = bytes.CutPrefix(line, []byte(mark))
	if !ok || len(rest) > 0 && rest[0] != ' ' && rest[0] != '\t' {
		return nil, false
	}
	return bytes.TrimSpace(rest), true
}

// toJSON converts one YAML text into JSON, valid until the next call; line numbers in errors are those of the input.
func (b *Builder) toJSON(text []byte, at place) ([]byte, error) {
	if raw, ok := b.fast(text); ok {
		return raw, nil
	}
	return b.slow(text, at)
}

// fast is toJSON for the form that kubectl prints; it is not ok if a full parser must read the text.
func (b *Builder) fast(text []byte) (json []byte, ok bool) {
	raw, ok := b.block.json(b.raw[:0], text)
	if ok {
		b.raw = raw
	}
	return raw, ok
}

// slow is toJSON for all of YAML, with a limit on the size that aliases may add.
func (b *Builder) slow(text []byte, at place) ([]byte, error) {
	raw, err := b.budget.ToJSON(text)
	if err == nil {
		return raw, nil
	}
	if errors.Is(err, bounded.ErrBound) {
		return nil, at.fail("write the values out where they are few, or split the file", err)
	}
	message := err.Error()
	if found := regexp.MustCompile(`yaml: (?:line (\d+): )?(.*)`).FindStringSubmatch(message); found != nil {
		message = found[2]
		if n, err := strconv.Atoi(found[1]); err == nil {
			at.line += n - 1
		}
	}
	return nil, at.fail("it must be YAML or JSON as `kubectl get -o yaml` prints it", errors.New("bad YAML: "+message))
}
