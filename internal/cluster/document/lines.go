package document

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// lines reads an input line by line, with limits.
type lines struct {
	file   string
	reader *bufio.Reader
	number int // of the last line read
}

func newLines(file string, input io.Reader) *lines {
	bounded := &boundedReader{input: input, left: MaxInput}
	return &lines{file: file, reader: bufio.NewReaderSize(bounded, 1<<16)}
}

var errTooLarge = fmt.Errorf("larger than %d MiB", MaxInput>>20)

// boundedReader fails with errTooLarge at its limit. io.LimitedReader would end there without an error, and a
// truncated input must never look complete.
type boundedReader struct {
	input io.Reader
	left  int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	n, err := b.input.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errTooLarge
	}
	return n, err
}

// endOfInput is a byte that does not occur in UTF-8 text.
const endOfInput = 0xfb

// peek returns the first byte that is not white space, without consuming anything after it.
func (l *lines) peek() (byte, error) {
	if mark, err := l.reader.Peek(3); err == nil && bytes.Equal(mark, []byte("\xef\xbb\xbf")) {
		_, _ = l.reader.Discard(3)
	}
	for {
		c, err := l.reader.ReadByte()
		if errors.Is(err, io.EOF) {
			return endOfInput, nil
		}
		if err != nil {
			return 0, l.fail(err)
		}
		switch c {
		case '\n':
			l.number++
		case ' ', '\t', '\r':
		default:
			return c, l.reader.UnreadByte()
		}
	}
}

// next returns a line without its end, valid until the next call. The error is io.EOF at the end.
func (l *lines) next() ([]byte, error) {
	var line []byte
	for {
		part, err := l.reader.ReadSlice('\n')
		if line == nil && err == nil {
			line = part
		} else {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull) && len(line) <= MaxObject:
			continue
		case errors.Is(err, bufio.ErrBufferFull):
			return nil, l.fail(fmt.Errorf("a line longer than %d MiB", MaxObject>>20))
		case errors.Is(err, io.EOF) && len(line) == 0:
			return nil, io.EOF
		case err != nil && !errors.Is(err, io.EOF):
			return nil, l.fail(err)
		}
		l.number++
		return bytes.TrimRight(line, "\r\n"), nil
	}
}

func (l *lines) fail(err error) error {
	hint := ""
	if errors.Is(err, errTooLarge) {
		hint = "split the resources into several files, or take a snapshot with: theseus snapshot -o FILE"
	}
	return &Error{File: l.file, Line: l.number, Err: err, Advice: hint}
}
