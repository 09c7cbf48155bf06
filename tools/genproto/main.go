// Command genproto remakes the Go code of the .proto files. It needs protoc;
// protoc-gen-go comes with this module. See ../README.md.
package main

import (
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// protos lists the files, relative to the repository root.
var protos = []string{
	"mil/milproto/milpb/mil.proto",
	"coreml/modelproto/modelpb/model.proto",
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("genproto: ")
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return err
	}
	tools := filepath.Dir(strings.TrimSpace(string(out)))
	if filepath.Base(tools) != "tools" {
		return fmt.Errorf("run it in the tools module, not in %s: go -C tools run ./genproto", tools)
	}
	bin, err := os.MkdirTemp("", "genproto")
	if err != nil {
		return err
	}
	defer os.RemoveAll(bin)
	plugin := filepath.Join(bin, "protoc-gen-go")
	if runtime.GOOS == "windows" {
		plugin += ".exe"
	}
	build := exec.Command("go", "build", "-o", plugin, "google.golang.org/protobuf/cmd/protoc-gen-go")
	build.Dir, build.Stderr = tools, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build protoc-gen-go: %w", err)
	}
	args := protoc()
	args = append(args, "--plugin=protoc-gen-go="+plugin, "-I.", "--go_out=.", "--go_opt=paths=source_relative")
	cmd := exec.Command(args[0], append(args[1:], protos...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = filepath.Dir(tools), os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	return nil
}

// protoc returns the command line that starts protoc.
func protoc() []string {
	if p := os.Getenv("PROTOC"); p != "" {
		return strings.Fields(p)
	}
	return []string{"protoc"}
}
