// target: 8.0
// option: -optimize-
// Changes a method of its own while it runs, as `dotnet watch` does: by metadata that go on where those of the file end.
// Needs DOTNET_MODIFIABLE_ASSEMBLIES=debug.
//
//     HotReloads
//
// It prints what the method says before and after the change.
using System;
using System.IO;
using System.Linq;
using System.Reflection;
using System.Reflection.Metadata;
using System.Reflection.Metadata.Ecma335;
using System.Reflection.PortableExecutable;
using System.Runtime.CompilerServices;

static class Target
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    internal static string Say() { return "as it was"; }
    [MethodImpl(MethodImplOptions.NoInlining)]
    internal static int Other(int n) { string text = n.ToString(); return text.Length; }
}

static class HotReloads
{
    static void Change(MetadataReader file, string text)
    {
        int Size(HeapIndex heap) => file.GetHeapSize(heap);
        var builder = new MetadataBuilder(Size(HeapIndex.UserString), Size(HeapIndex.String), Size(HeapIndex.Blob), Size(HeapIndex.Guid));
        ModuleDefinition module = file.GetModuleDefinition();
        MethodDefinitionHandle handle = file.MethodDefinitions.Single(method => file.GetString(file.GetMethodDefinition(method).Name) == "Say");
        MethodDefinition say = file.GetMethodDefinition(handle);
        GuidHandle id = builder.GetOrAddGuid(Guid.NewGuid());
        builder.AddModule(1, builder.GetOrAddString(file.GetString(module.Name)), builder.GetOrAddGuid(file.GetGuid(module.Mvid)), id, default);
        var locals = new BlobBuilder();
        new BlobEncoder(locals).LocalVariableSignature(1).AddVariable().Type().String();
        builder.AddStandaloneSignature(builder.GetOrAddBlob(locals));
        EntityHandle signature = MetadataTokens.StandaloneSignatureHandle(file.GetTableRowCount(TableIndex.StandAloneSig) + 1);
        var il = new BlobBuilder();
        il.WriteUInt32(0);
        // A fat header that asks for zeroes; ldstr, stloc.0, ldloc.0, ret.
        il.WriteUInt16(0x3013);
        il.WriteUInt16(2);
        il.WriteUInt32(8);
        il.WriteInt32(MetadataTokens.GetToken(signature));
        il.WriteByte(0x72);
        il.WriteInt32(MetadataTokens.GetToken(builder.GetOrAddUserString(text)));
        il.WriteBytes(new byte[] { 0x0A, 0x06, 0x2A });
        builder.AddMethodDefinition(say.Attributes, say.ImplAttributes, builder.GetOrAddString("Say"),
            builder.GetOrAddBlob(file.GetBlobBytes(say.Signature)), 4, MetadataTokens.ParameterHandle(1));
        foreach (EntityHandle row in new[] { signature, handle }) builder.AddEncLogEntry(row, EditAndContinueOperation.Default);
        foreach (EntityHandle row in new[] { handle, signature }) builder.AddEncMapEntry(row);
        var metadata = new BlobBuilder();
        new MetadataRootBuilder(builder, file.MetadataVersion, true).Serialize(metadata, 0, 0);
        MetadataUpdater.ApplyUpdate(typeof(Target).Assembly, metadata.ToArray(), il.ToArray(), ReadOnlySpan<byte>.Empty);
    }

    static int Main()
    {
        using var image = new PEReader(File.OpenRead(typeof(Target).Assembly.Location));
        Console.WriteLine("{0}, {1}", Target.Say(), Target.Other(10));
        Change(image.GetMetadataReader(), "changed");
        for (int i = 0; i < 3; i++) Console.WriteLine("{0}, {1}", Target.Say(), Target.Other(i));
        return 0;
    }
}
