// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/resource"
)

// Selection is how a user names the objects that a command is about, as for kubectl: TYPE NAME,
// TYPE/NAME, a name without a type, a label selector, or files. The zero value takes TYPE NAME
// and TYPE/NAME of every type that the API server knows.
type Selection struct {
	// Type is the type of a name without a type, such as serviceaccount; empty if the user
	// must write the type.
	Type string
	// Kinds are the kinds that the command is for, such as ServiceAccount; empty for all.
	Kinds []string
	// NamesOnly leaves the objects unread, for objects that may not exist, or that the user
	// may have no right to read.
	NamesOnly bool
	// All, Selector and Files are the values of flags.
	All      bool
	Selector string
	Files    resource.FilenameOptions
}

// AddSelector adds the flags --selector and --all-namespaces.
func (s *Selection) AddSelector(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&s.Selector, "selector", "l", "", "Label selector, such as app=cart,tier!=web.")
	AddAllNamespaces(cmd, &s.All)
}

// AddFiles adds the flags --filename and --recursive.
func (s *Selection) AddFiles(cmd *cobra.Command) {
	flags := genericclioptions.FileNameFlags{
		Usage: "File or directory with manifests in YAML or JSON, or - for the standard input. Can be repeated.", Filenames: &s.Files.Filenames, Recursive: &s.Files.Recursive,
	}
	flags.AddFlags(cmd.Flags())
}

// EachFile calls do for each file of --filename, for a command that needs the text and not only
// the objects in it. A directory stands for its files with kubectl's extensions,
// except those in hidden directories.
func (s *Selection) EachFile(stdin io.Reader, do func(name string, r io.Reader) error) error {
	for _, name := range s.Files.Filenames {
		if name == "-" {
			if err := do("standard input", stdin); err != nil {
				return err
			}
			continue
		}
		visitors, err := resource.ExpandPathsToFileVisitors(nil, name, s.Files.Recursive, resource.FileExtensions, nil)
		if err != nil {
			return err
		}
		for _, visitor := range visitors {
			file, _ := visitor.(*resource.FileVisitor)
			if isHidden(name, file.Path) {
				continue
			}
			text, err := os.Open(file.Path)
			if err != nil {
				return err
			}
			if err := errors.Join(do(file.Path, text), text.Close()); err != nil {
				return err
			}
		}
	}
	return nil
}

// isHidden reports whether a file is in a hidden directory below dir, such as .git.
func isHidden(dir, file string) bool {
	below, err := filepath.Rel(dir, filepath.Dir(file))
	return err == nil && slices.ContainsFunc(strings.Split(below, string(filepath.Separator)), func(part string) bool {
		return strings.HasPrefix(part, ".") && part != "." && part != ".."
	})
}

// arguments returns the arguments with the type of a name without a type.
func (s *Selection) arguments(args []string) ([]string, error) {
	files, list := len(s.Files.Filenames) > 0, s.Selector != "" || s.All
	switch {
	case files && (len(args) > 0 || list):
		return nil, Usagef("--filename cannot be used with names, --selector or --all-namespaces")
	case files || len(args) > 1 || len(args) == 1 && strings.Contains(args[0], "/"):
		return args, nil
	case s.Type == "" && len(args) == 0:
		return nil, Usagef("an object is missing: write TYPE/NAME or TYPE NAME")
	case list && len(args) == 0:
		return []string{s.Type}, nil
	case list:
		return args, nil // a type
	case len(args) == 0:
		return nil, Usagef("an object is missing: write the name of a %s", s.Type)
	case s.Type == "":
		return nil, Usagef("%s has no name: write TYPE/NAME or TYPE NAME", args[0])
	}
	return []string{s.Type, args[0]}, nil
}

// Objects returns the objects of the arguments and flags of a command. The object of an Info
// is unstructured, or nil with NamesOnly; NameOf names it for people.
func (c *CLI) Objects(s *Selection, args []string) ([]*resource.Info, error) {
	args, err := s.arguments(args)
	if err != nil {
		return nil, err
	}
	namespace, enforce, err := c.Flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, fmt.Errorf("namespace: %w", err)
	}
	files := s.Files
	files.Filenames = slices.DeleteFunc(slices.Clone(files.Filenames), func(name string) bool { return name == "-" })
	builder := resource.NewBuilder(c.Flags).Unstructured().ContinueOnError().
		NamespaceParam(namespace).DefaultNamespace().AllNamespaces(s.All).
		FilenameParam(enforce && !s.All, &files).LabelSelectorParam(s.Selector).
		ResourceTypeOrNameArgs(s.All, args...).RequestChunksOf(pageSize).RequireObject(!s.NamesOnly).Flatten()
	if len(files.Filenames) < len(s.Files.Filenames) {
		builder.Stream(c.In, "standard input") // resource.Builder only knows os.Stdin
	}
	infos, err := builder.Do().Infos()
	if err != nil {
		return nil, err
	}
	for _, info := range infos {
		if kind := info.Mapping.GroupVersionKind.Kind; len(s.Kinds) > 0 && !slices.Contains(s.Kinds, kind) {
			return nil, Usagef("%s: this command is for %s", NameOf(info), strings.ToLower(strings.Join(s.Kinds, ", ")))
		}
	}
	return infos, nil
}

// Object is Objects for a command that is about one object.
func (c *CLI) Object(s *Selection, args []string) (*resource.Info, error) {
	infos, err := c.Objects(s, args)
	if err == nil && len(infos) != 1 {
		err = Usagef("%d objects are named: this command is for one", len(infos))
	}
	if err != nil {
		return nil, err
	}
	return infos[0], nil
}

// NameOf returns how the user may write an object: deployment/cart.
func NameOf(info *resource.Info) string {
	return strings.ToLower(info.Mapping.GroupVersionKind.Kind) + "/" + info.Name
}

// Unstructured returns the object of an Info that Objects returned.
func Unstructured(info *resource.Info) *unstructured.Unstructured {
	object, _ := info.Object.(*unstructured.Unstructured)
	return object
}
