// Runs a static program out of anonymous memory, as packed programs (UPX) do: packed PROGRAM ARGUMENT...
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void must(int good, const char *what)
{
	if (!good) {
		perror(what);
		exit(1);
	}
}

static void load(const char *image, const Elf64_Phdr *part)
{
	unsigned long page = sysconf(_SC_PAGESIZE), start = part->p_vaddr & -page;
	unsigned long end = (part->p_vaddr + part->p_memsz + page - 1) & -page;
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, protection = 0;
	void *memory = mmap((void *)start, end - start, PROT_READ | PROT_WRITE, flags, -1, 0);
	must(memory == (void *)start, "mmap");
	memcpy((void *)part->p_vaddr, image + part->p_offset, part->p_filesz);
	protection |= part->p_flags & PF_R ? PROT_READ : 0;
	protection |= part->p_flags & PF_W ? PROT_WRITE : 0;
	protection |= part->p_flags & PF_X ? PROT_EXEC : 0;
	must(mprotect(memory, end - start, protection) == 0, "mprotect");
}

int main(int argc, char **argv)
{
	must(argc > 1, "packed PROGRAM");
	int file = open(argv[1], O_RDONLY);
	struct stat about;
	must(file >= 0 && fstat(file, &about) == 0, argv[1]);
	// Unpacked: a copy that no file stands for.
	char *image = malloc(about.st_size);
	must(image && read(file, image, about.st_size) == about.st_size, "read");
	close(file);
	const Elf64_Ehdr *head = (const Elf64_Ehdr *)image;
	const Elf64_Phdr *parts = (const Elf64_Phdr *)(image + head->e_phoff);
	for (int index = 0; index < head->e_phnum; index++)
		if (parts[index].p_type == PT_LOAD)
			load(image, &parts[index]);
	unsigned long entry = head->e_entry;
	free(image);
	// Its stack begins with the number of arguments, which takes the place of our name.
	argv[0] = (char *)(long)(argc - 1);
	__asm__ volatile("mov %0, %%rsp\n\tjmp *%1" : : "c"(argv), "a"(entry) : "memory");
	__builtin_unreachable();
}
