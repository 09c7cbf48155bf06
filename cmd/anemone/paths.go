package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// worded is an error in words of its own.
type worded struct {
	text string
	err  error
}

func (e *worded) Error() string { return e.text }
func (e *worded) Unwrap() error { return e.err }

// hubID is what a model on the Hugging Face hub is called.
var hubID = regexp.MustCompile(`^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$`)

// checkpointHint says what somebody who gave path for a checkpoint may have
// meant, where that can be guessed; nil if not.
func checkpointHint(path string) error {
	has := func(name ...string) bool {
		_, err := os.Stat(filepath.Join(append([]string{path}, name...)...))
		return err == nil
	}
	_, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && strings.EqualFold(filepath.Ext(path), ".gguf"):
		return &worded{fmt.Sprintf("checkpoint %s: no such file", path), err}
	case errors.Is(err, fs.ErrNotExist) && hubID.MatchString(filepath.ToSlash(path)):
		_, name, _ := strings.Cut(filepath.ToSlash(path), "/")
		return &worded{fmt.Sprintf("there is no folder %s. If that is a model on the Hugging Face hub, download it first: hf download %s --local-dir %s", path, filepath.ToSlash(path), name), err}
	case errors.Is(err, fs.ErrNotExist):
		return &worded{fmt.Sprintf("checkpoint %s: no such folder", path), err}
	case err != nil || has("config.json"):
		return nil
	}
	if revisions, _ := filepath.Glob(filepath.Join(path, "snapshots", "*", "config.json")); len(revisions) > 0 {
		return fmt.Errorf("%s is a model in the hub's cache: the checkpoint is %s", path, filepath.Dir(revisions[len(revisions)-1]))
	}
	if files, _ := filepath.Glob(filepath.Join(path, "*.gguf")); len(files) == 1 && !has("meta.yaml") {
		return fmt.Errorf("%s is a folder with a GGUF file: give the file itself, %s", path, files[0])
	} else if len(files) > 1 && !has("meta.yaml") {
		return fmt.Errorf("%s is a folder with %d GGUF files: give one of them, such as %s", path, len(files), files[0])
	}
	if files, _ := filepath.Glob(filepath.Join(path, "snapshots", "*", "*.gguf")); len(files) > 0 {
		return fmt.Errorf("%s is a model in the hub's cache: give the GGUF file in it: %s", path, files[len(files)-1])
	}
	if has("snapshots") {
		return fmt.Errorf("%s is a model in the hub's cache, but no revision in its folder snapshots has a config.json: download it again", path)
	}
	return nil
}
